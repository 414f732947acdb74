#![allow(clippy::disallowed_methods, reason = "tests read the clock for time limits")]

use std::ptr::NonNull;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use fake_nccl::{Alive, Fault};

use super::*;
use crate::tests::{LONG, keeps_the_contract, on_threads};

/// Timeout for operations that cannot finish; threads start sooner.
const SHORT: Duration = Duration::from_millis(100);

/// Reason of an operation that reached the timeout.
const LATE: &str = "a member did not arrive in time";

/// The next unused device. Each test takes separate devices.
static DEVICES: AtomicUsize = AtomicUsize::new(0);

fn devices(count: usize) -> usize {
    DEVICES.fetch_add(count, Ordering::Relaxed)
}

/// Number of aborts that were given up.
static GIVEN_UP: AtomicUsize = AtomicUsize::new(0);

fn clock() -> Clock {
    let give_up = || {
        GIVEN_UP.fetch_add(1, Ordering::Relaxed);
    };
    Clock { now: Instant::now, pause: std::thread::sleep, give_up }
}

fn nccl(device: usize) -> Nccl {
    Nccl::found_by(fake_nccl::lookup, device, clock()).unwrap()
}

/// A rank of a group that may be incomplete.
#[derive(Debug, Clone)]
struct Seat {
    nccl: Nccl,
    id: UniqueId,
    place: [usize; 2],
    interrupt: Arc<AtomicBool>,
}

impl Seat {
    fn join(&self, timeout: Duration) -> Result<Communicator, Error> {
        self.nccl.join(&self.id, self.place, timeout, &self.interrupt)
    }
}

/// Returns the ranks of a new group, one per device.
fn seats(devices: &[usize]) -> Vec<Seat> {
    let id = nccl(devices[0]).unique_id().unwrap();
    let interrupt = Arc::default;
    let seat = |(rank, &device): (usize, &usize)| Seat {
        nccl: nccl(device),
        id,
        place: [rank, devices.len()],
        interrupt: interrupt(),
    };
    devices.iter().enumerate().map(seat).collect()
}

fn group(devices: &[usize]) -> Vec<Communicator> {
    on_threads(seats(devices), |seat| seat.join(LONG).unwrap())
}

/// Returns numbers in the memory of a fake device, which is host memory.
fn cuda(numbers: &mut [f32], device: usize) -> Numbers<'_> {
    let len = numbers.len();
    // SAFETY: the slice is borrowed for the lifetime of the numbers.
    Numbers::Cuda(unsafe { CudaNumbers::new(NonNull::new(numbers.as_mut_ptr()).unwrap(), len, device) })
}

#[test]
fn nccl_keeps_the_contract_and_frees_everything() {
    let first = devices(3);
    let all = [first, first + 1, first + 2];
    keeps_the_contract(|size| {
        group(&all[..size]).into_iter().map(|member| Box::new(member) as Box<dyn Collective>).collect()
    });
    for device in all {
        let Alive { communicators, streams, events, buffers, aborted } = fake_nccl::alive(device);
        assert_eq!([communicators, streams, events, buffers], [0; 4], "of device {device}");
        assert!(aborted > 0);
    }
}

#[test]
fn numbers_on_the_gpu_are_summed_where_they_are() {
    let first = devices(2);
    let sums = on_threads(group(&[first, first + 1]), |member| {
        let device = first + member.rank();
        assert_eq!(member.memory(), Memory::Cuda(device));
        let mut numbers: Vec<f32> = (0..1000).map(|index| (index * (member.rank() + 1)) as f32).collect();
        for _ in 0..2 {
            member.all_reduce(cuda(&mut numbers, device), LONG).unwrap();
        }
        assert_eq!(fake_nccl::alive(device).buffers, 0, "they were copied");
        numbers
    });
    let expected: Vec<f32> = (0..1000).map(|index| (6 * index) as f32).collect();
    assert_eq!(sums, [expected.clone(), expected]);
}

#[test]
fn numbers_on_another_gpu_or_for_a_group_of_hosts_are_refused() {
    let first = devices(1);
    let mut alone = group(&[first]).pop().unwrap();
    let error = alone.all_reduce(cuda(&mut [1.0], first + 1), LONG).unwrap_err().to_string();
    assert!(error.contains(&format!("on GPU {}", first + 1)), "{error}");
    alone.all_reduce(cuda(&mut [1.0], first), LONG).unwrap();
    let mut threads = crate::in_process::in_process(1).pop().unwrap();
    assert_eq!(threads.memory(), Memory::Host);
    assert!(threads.all_reduce(cuda(&mut [1.0], first), LONG).unwrap_err().reason.contains("host memory"));
}

#[test]
fn state_larger_than_the_staged_part_arrives_whole() {
    let first = devices(2);
    let len = STAGED_BYTES + 5;
    let arrived = on_threads(group(&[first, first + 1]), |member| {
        let mut bytes: Vec<u8> = (0..len).map(|index| (index * (member.rank() + 3)) as u8).collect();
        member.broadcast(1, &mut bytes, LONG).unwrap();
        bytes
    });
    let expected: Vec<u8> = (0..len).map(|index| (index * 4) as u8).collect();
    assert!(arrived.iter().all(|bytes| *bytes == expected));
}

#[test]
fn a_join_that_hangs_is_aborted_at_its_time_limit_and_the_next_one_succeeds() {
    let first = devices(2);
    // The other member never joins (`absent`), or hangs (`stuck`).
    let absent = seats(&[first, first + 1])[0].join(SHORT).unwrap_err();
    fake_nccl::set_fault(first + 1, Some(Fault::JoinHangs));
    let stuck = on_threads(seats(&[first, first + 1]), |seat| seat.join(SHORT).unwrap_err());
    assert_eq!((absent.operation, absent.reason.as_str()), ("join", LATE));
    // After one member has aborted, the other may report that instead of the timeout.
    assert!(
        stuck.iter().all(|error| error.operation == "join") && stuck.iter().any(|error| error.reason == LATE),
        "{stuck:?}"
    );
    let Alive { communicators, aborted, .. } = fake_nccl::alive(first);
    assert_eq!((communicators, aborted), (0, 2));
    fake_nccl::set_fault(first + 1, None);
    on_threads(group(&[first, first + 1]), |member| member.all_reduce(Numbers::Host(&mut [1.0]), LONG).unwrap());
}

/// The only test in which an abort hangs.
#[test]
fn an_abort_that_hangs_is_given_up_at_its_time_limit_and_leaves_the_caller_free() {
    // Only pauses take time.
    static PAUSED_NS: AtomicU64 = AtomicU64::new(0);
    static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
    let paused = || Duration::from_nanos(PAUSED_NS.load(Ordering::Relaxed));
    let now = || *BEGUN + Duration::from_nanos(PAUSED_NS.load(Ordering::Relaxed));
    let pause = |time: Duration| {
        PAUSED_NS.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    };
    let first = devices(2);
    fake_nccl::set_fault(first, Some(Fault::AbortHangs));
    let nccl = Nccl::found_by(fake_nccl::lookup, first, Clock { now, pause, ..clock() }).unwrap();
    let seat = Seat { nccl, ..seats(&[first, first + 1]).swap_remove(0) };
    let error = seat.join(SHORT).unwrap_err();
    assert_eq!((error.operation, error.reason.as_str()), ("join", LATE));
    assert!(paused() >= ABORT_TIME, "the abort had its time");
    assert_eq!(GIVEN_UP.load(Ordering::Relaxed), 1);
    assert_eq!(fake_nccl::alive(first).aborted, 0);
    fake_nccl::set_fault(first, None);
}

#[test]
fn a_join_that_is_refused_says_why() {
    let first = devices(1);
    let errors = on_threads(seats(&[first, first]), |seat| seat.join(LONG).unwrap_err().to_string());
    let expected = "join failed: invalid usage: Duplicate GPU detected";
    assert_eq!(errors, [expected, expected]);
    fake_nccl::set_fault(first, Some(Fault::JoinRefused));
    let error = seats(&[first])[0].join(LONG).unwrap_err().to_string();
    assert_eq!(error, "join failed: unhandled system error (error 2)");
    assert_eq!(fake_nccl::alive(first).streams, 0);
}

#[test]
fn an_operation_whose_other_member_left_unnoticed_is_aborted_at_its_time_limit() {
    let first = devices(2);
    fake_nccl::set_fault(first + 1, Some(Fault::LeavesSilently));
    let mut members = group(&[first, first + 1]);
    drop(members.pop());
    let mut left = members.pop().unwrap();
    let mut numbers = [1.0; 8];
    let error = left.all_reduce(cuda(&mut numbers, first), SHORT).unwrap_err();
    assert_eq!((error.operation, error.reason.as_str()), ("all-reduce", LATE));
    assert_eq!(fake_nccl::alive(first).communicators, 0, "it was not aborted");
    let error = left.broadcast(0, &mut [1], LONG).unwrap_err();
    assert_eq!((error.operation, error.reason.as_str()), ("broadcast", "the group was aborted"));
}

#[test]
fn an_interrupt_ends_an_operation_before_its_time_limit() {
    let first = devices(2);
    fake_nccl::set_fault(first + 1, Some(Fault::LeavesSilently));
    let seats = seats(&[first, first + 1]);
    let interrupt = Arc::clone(&seats[0].interrupt);
    let mut members = on_threads(seats, |seat| seat.join(LONG).unwrap());
    drop(members.pop());
    let mut left = members.pop().unwrap();
    let error = std::thread::scope(|scope| {
        let waiting = scope.spawn(move || left.all_reduce(Numbers::Host(&mut [1.0]), LONG).unwrap_err());
        interrupt.store(true, Ordering::Relaxed);
        waiting.join().unwrap()
    });
    assert_eq!((error.operation, error.reason.as_str()), ("all-reduce", "a member left the group"));
}

#[test]
fn an_error_that_nccl_reports_later_ends_the_operation_on_every_member() {
    let first = devices(2);
    fake_nccl::set_fault(first, Some(Fault::FailsAfter(1)));
    let errors = on_threads(group(&[first, first + 1]), |member| {
        member.all_reduce(Numbers::Host(&mut [1.0]), LONG).unwrap();
        member.all_reduce(Numbers::Host(&mut [1.0]), LONG).unwrap_err().reason
    });
    assert_eq!(errors[0], "unhandled system error (error 2)");
    assert!(errors[1].starts_with("remote process exited"), "{errors:?}");
}

#[test]
fn a_gpu_has_one_identity_and_a_missing_one_is_an_error() {
    let first = devices(2);
    assert_eq!(nccl(first).gpu(), nccl(first).gpu());
    assert_ne!(nccl(first).gpu(), nccl(first + 1).gpu());
    let error = Nccl::found_by(fake_nccl::lookup, 64, clock()).unwrap_err().to_string();
    assert!(error.contains("the identity of GPU 64"), "{error}");
}
