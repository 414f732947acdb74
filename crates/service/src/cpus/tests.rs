use super::*;

#[test]
fn cores_come_before_their_second_cpus() {
    // Two cores of two, their cpus side by side; then one after another.
    assert_eq!(cores_first(&[0, 1, 2, 3], |cpu| cpu / 2), [0, 2, 1, 3]);
    assert_eq!(cores_first(&[0, 1, 2, 3], |cpu| cpu % 2), [0, 1, 2, 3]);
    // A mask that leaves out half of a core.
    assert_eq!(cores_first(&[1, 4, 5], |cpu| cpu / 2), [1, 4, 5]);
    assert_eq!(cores_first(&[], |cpu| cpu), [0_usize; 0]);
}

#[cfg(target_os = "linux")]
#[test]
fn each_pinned_thread_may_run_on_one_allowed_cpu_that_no_other_has() {
    let cpus = allowed().unwrap();
    assert!(!cpus.is_empty());
    let pinned = std::thread::scope(|scope| {
        let threads: Vec<_> = cpus
            .iter()
            .map(|&cpu| {
                scope.spawn(move || {
                    cpu.pin().unwrap();
                    allowed().unwrap()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(pinned, cpus.iter().map(|&cpu| vec![cpu]).collect::<Vec<_>>());
    let distinct: std::collections::BTreeSet<Cpu> = cpus.iter().copied().collect();
    assert_eq!(distinct.len(), cpus.len());
    assert_eq!(allowed().unwrap(), cpus, "other threads stay where they were");
}

#[cfg(target_os = "linux")]
#[test]
fn a_cpu_that_is_not_there_is_refused() {
    assert!(Cpu(1023).pin().is_err());
}
