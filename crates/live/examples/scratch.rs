use live::bpf::*;
use live::bpf::layout::*;
fn main() {
    let ms: u64 = std::env::args().nth(1).unwrap().parse().unwrap(); let n: u32 = std::env::args().nth(2).unwrap().parse().unwrap();
    let spec = LoadSpec{flavour: Flavour::Btf, config: Config{slots:96, percpu_offsets: live::bpf::kernel_counters::percpu_offsets(), ..Default::default()}, programs: &["local_timer_in","local_timer_out","softirq_in","softirq_out","irq_handler_in","irq_handler_out","napi_polled","call_function_single_in","call_function_single_out","page_fault_of_user","reschedule_in","reschedule_out","call_function_in","call_function_out"]};
    let mut p = Probes::load(&spec).unwrap();
    for n in spec.programs { if let Err(e) = p.attach(n) { println!("{e}"); } }
    let mut bad = [0;2]; let mut total=[0u64;2];
    for _ in 0..n {
    p.clear().unwrap();
    for c in 0..2 { p.open_gate(c).unwrap(); }
    std::thread::sleep(std::time::Duration::from_millis(ms));
    for c in 0..2 { p.close_gate(c).unwrap(); }
    let st = p.states().unwrap();
    let rows = p.rows().unwrap();
    for (i,s) in st.iter().enumerate() { let mut d = String::new(); for k in (0..10).chain(17..20) { let key = if k<10 {32+k as u32} else if k==17 {1} else if k==18 {2} else {4}; let n: u64 = rows.iter().filter(|(c,r)| *c==i as u32 && r.key==key).map(|(_,r)| r.count).sum::<u64>() + s.frames[..s.depth as usize].iter().filter(|f| f.key==key).count() as u64; let kk = s.kernel_disarmed[k].wrapping_sub(s.kernel_armed[k]); total[i]+=n; if n!=kk { d += &format!("{k}:{kk}/{n} "); }} if !d.is_empty() { bad[i]+=1; println!("armed {} disarmed {} batches {:?}", s.armed_ns, s.disarmed_ns, rows.iter().filter(|(c,r)| *c==i as u32 && r.key==1).map(|(_,r)| (r.batch_shift, r.batches.iter().enumerate().filter(|(_,b)| b.count>0).map(|(k,b)| (k, b.count)).collect::<Vec<_>>())).collect::<Vec<_>>()); println!("cpu {i} unm {} depth {} top {}: {d}", s.unmatched_exits, s.depth, s.frames[0].key); } }
    }
    println!("bad windows {bad:?} of {n}, events {total:?} misses {}", p.misses().unwrap());
}
