//! `irqlab sim facts`: symbols, types and settings of the guest's kernel, or the addresses and offsets of single
//! names.

use std::process::ExitCode;

use sim::{Cache, qemu};

use crate::console;
use crate::options::Usage;
use crate::simulated::KernelArgs;

/// Prints the facts of the guest's kernel, or where the names in `look_up` are.
pub fn facts(cache: &Cache, args: &KernelArgs, look_up: &[String]) -> anyhow::Result<ExitCode> {
    let qemu = qemu::find(cache)?;
    let kernel = args.kernel(cache)?;
    let facts = sim::guest_facts(cache, &qemu, &kernel, &console::say)?;
    let count = |count: Option<usize>| count.map_or("none".to_owned(), |count| count.to_string());
    let mut text = String::new();
    if look_up.is_empty() {
        text += &format!("release  {}\n", facts.release);
        text += &format!("HZ       {}\n", count(facts.hz.map(|hz| hz as usize)));
        text += &format!("symbols  {}\n", count(facts.symbols.as_ref().map(|all| all.len())));
        text += &format!("types    {}\n", count(facts.btf.as_ref().map(|all| all.len())));
        let lines = facts.config.as_ref().map(|config| config.lines().count());
        text += &format!(
            "config   {}\n",
            lines.map_or("none".to_owned(), |count| format!("{count} lines"))
        );
    }
    for name in look_up {
        text += &format!("{name}  {}\n", looked_up(&facts, name)?);
    }
    console::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Where a name is: a member of a structure (`task_struct.comm`), an address (`0x...`), or a symbol.
///
/// Fails when the kernel does not have the name, or no facts of this kind.
fn looked_up(facts: &sim::GuestFacts, name: &str) -> anyhow::Result<String> {
    let lacks = |part: &str| Usage(format!("this kernel has no {part}"));
    if let Some((type_name, path)) = name.split_once('.') {
        let member =
            facts.btf.as_ref().ok_or_else(|| lacks("type information"))?.member(type_name, path)?;
        return Ok(format!(
            "offset {} bytes, size {} bytes",
            member.offset_bytes, member.size_bytes
        ));
    }
    let symbols = facts.symbols.as_ref().ok_or_else(|| lacks("symbols"))?;
    if let Some(address) = name.strip_prefix("0x") {
        let address =
            u64::from_str_radix(address, 16).map_err(|error| Usage(format!("{name}: {error}")))?;
        let (symbol, bytes) =
            symbols.symbol_at(address).ok_or_else(|| lacks("symbol at or before this address"))?;
        return Ok(format!("{}+{bytes:#x}", symbol.name));
    }
    if symbols.symbol_named(name).is_none() && !symbols.functions(name, 0).is_empty() {
        // The compiler has made several bodies of the function, with names such as `name.part.0`.
        let body = |symbol: &&sim::Symbol| format!("{:#x} ({})", symbol.address, symbol.name);
        let bodies: Vec<String> = symbols.functions(name, 0).iter().map(body).collect();
        return Ok(bodies.join(", "));
    }
    let per_cpu = symbols.per_cpu_offset(name).map(|offset| format!(" (per CPU: {offset:#x})"));
    Ok(format!("{:#x}{}", symbols.address(name)?, per_cpu.unwrap_or_default()))
}
