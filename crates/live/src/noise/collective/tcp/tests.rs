//! Ranks by TCP, as threads of the test.

use super::*;
use std::io::Read;
use std::thread;

const TOKEN: &[u8] = b"0123456789abcdef";

fn job(rank: u32, rank_count: u32, limit: Duration) -> TcpJob {
    TcpJob { rank, rank_count, token: TOKEN.to_vec(), limit }
}

fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn ranks_exchange_messages_and_meet_at_collectives() {
    let (listener, address) = listener();
    thread::scope(|scope| {
        for rank in 1..4 {
            let address = &address;
            scope.spawn(move || {
                let mut tcp = Tcp::connect(job(rank, 4, LONG), address).unwrap();
                tcp.set_busy_waits(rank == 1);
                tcp.send(0, &[rank as u8; 100_000]).unwrap();
                assert_eq!(tcp.receive(0, 10).unwrap(), b"go");
                for number in 0..50 {
                    tcp.collective(Operation::Barrier, number).unwrap();
                    tcp.collective(Operation::Allreduce, number).unwrap();
                }
                tcp.finish().unwrap();
            });
        }
        let mut tcp = Tcp::accept(job(0, 4, LONG), &listener, || None).unwrap();
        for rank in 1..4 {
            assert_eq!(tcp.receive(rank, 100_000).unwrap(), vec![rank as u8; 100_000]);
            tcp.send(rank, b"go").unwrap();
        }
        for number in 0..50 {
            tcp.collective(Operation::Barrier, number).unwrap();
            tcp.collective(Operation::Allreduce, number).unwrap();
        }
    });
}

/// Starts rank 0 and rank 1 of two, and returns what rank 0 got.
fn two(root: impl FnOnce(&mut Tcp) + Send, one: impl FnOnce(&mut Tcp) + Send) {
    let (listener, address) = listener();
    thread::scope(|scope| {
        scope.spawn(|| one(&mut Tcp::connect(job(1, 2, LONG), &address).unwrap()));
        root(&mut Tcp::accept(job(0, 2, LONG), &listener, || None).unwrap());
    });
}

#[test]
fn a_rank_that_is_gone_ends_the_wait_for_it() {
    two(
        |tcp| {
            let error = tcp.collective(Operation::Barrier, 1).unwrap_err().to_string();
            assert!(error.contains("rank 1 is gone"), "{error}");
        },
        |_| {},
    );
}

#[test]
fn a_rank_that_gives_up_says_why() {
    two(
        |tcp| tcp.abort("the disk is full"),
        |tcp| {
            let error = tcp.receive(0, 10).unwrap_err().to_string();
            assert_eq!(error, "rank 0 ended the job: the disk is full");
        },
    );
}

#[test]
fn a_message_that_is_too_long_is_refused_before_it_is_read() {
    two(
        |tcp| {
            let error = tcp.receive(1, 1_000).unwrap_err().to_string();
            assert!(error.contains("longer than the allowed 1000 bytes"), "{error}");
        },
        |tcp| tcp.send(0, &[0; 1_001]).unwrap(),
    );
}

#[test]
fn ranks_at_different_collectives_are_noticed() {
    two(
        |tcp| {
            let error = tcp.collective(Operation::Barrier, 1).unwrap_err().to_string();
            assert!(error.contains("wrong result"), "{error}");
        },
        |tcp| {
            let _ = tcp.collective(Operation::Barrier, 2);
        },
    );
}

#[test]
fn a_rank_that_sends_nothing_is_waited_for_until_the_limit() {
    let (listener, address) = listener();
    let short = Duration::from_millis(50);
    for waits_busily in [false, true] {
        let silent = Tcp::connect(job(1, 2, LONG), &address).unwrap();
        let mut tcp = Tcp::accept(job(0, 2, Duration::from_secs(5)), &listener, || None).unwrap();
        tcp.job.limit = short;
        tcp.set_busy_waits(waits_busily);
        let error = tcp.receive(1, 10).unwrap_err().to_string();
        assert!(error.contains("rank 1 sent nothing for"), "{error}");
        drop(silent);
    }
}

#[test]
fn foreign_connections_do_not_join() {
    let (listener, address) = listener();
    let stranger = TcpJob { token: b"another token 16".to_vec(), ..job(1, 2, LONG) };
    let _stranger = Tcp::connect(stranger, &address).unwrap();
    let mut web = TcpStream::connect(&address).unwrap();
    web.write_all(&[b'G'; JOIN_BYTES]).unwrap();
    let _silent = TcpStream::connect(&address).unwrap();
    let job = job(0, 2, Duration::from_millis(200));
    let error = Tcp::accept(job, &listener, || None).err().unwrap().to_string();
    assert!(error.contains("ranks 1 of 2 did not join"), "{error}");
    assert!(error.contains("2 connections had no or another token"), "{error}");
    // A stranger gets no byte.
    assert_eq!(web.read(&mut [0; 10]).unwrap_or(0), 0);
}

#[test]
fn a_rank_of_another_version_or_job_is_refused_with_the_reason() {
    for (changed, says) in [
        (job(1, 3, LONG), "rank 1 has --ranks 3, and rank 0 has --ranks 2"),
        (job(2, 2, LONG), "a second rank 2 joined"),
    ] {
        let (listener, address) = listener();
        let mut tcp = Tcp::connect(changed, &address).unwrap();
        let error = Tcp::accept(job(0, 2, LONG), &listener, || None).err().unwrap();
        assert!(error.to_string().contains(says), "{error}");
        let told = tcp.receive(0, 10).unwrap_err().to_string();
        assert!(told.contains(says), "{told}");
    }
    let (listener, address) = listener();
    let mut other = TcpStream::connect(&address).unwrap();
    let mut request = MAGIC.to_vec();
    for number in [PROTOCOL + 1, 1, 2, TOKEN.len() as u32] {
        request.extend(number.to_le_bytes());
    }
    request.extend(TOKEN);
    request.resize(JOIN_BYTES, 0);
    other.write_all(&request).unwrap();
    let error = Tcp::accept(job(0, 2, LONG), &listener, || None).err().unwrap().to_string();
    assert!(error.contains("another version of irqlab"), "{error}");
}

#[test]
fn waiting_ends_when_the_caller_knows_that_nobody_comes() {
    let (listener, _) = listener();
    let gone = || Some("rank 1 could not be started".to_owned());
    let error = Tcp::accept(job(0, 2, LONG), &listener, gone).err().unwrap().to_string();
    assert_eq!(error, "rank 1 could not be started");
}

#[test]
fn each_address_of_rank_0_is_tried() {
    let (closed, closed_address) = listener();
    drop(closed);
    let (listener, address) = listener();
    let addresses = [closed_address, address].map(|address| address.parse().unwrap());
    let stream = connect_to_any(&addresses, LONG).unwrap();
    assert_eq!(stream.peer_addr().unwrap(), addresses[1]);
    let (_, peer) = listener.accept().unwrap();
    assert_eq!(peer, stream.local_addr().unwrap());
}
