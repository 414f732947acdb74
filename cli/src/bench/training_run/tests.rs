use super::*;
use crate::bench::tests::args;
use crate::bench::usage::{ThreadUsage, Usage};

/// An actor that tells this.
pub(in crate::bench) fn actor(exposition: &str) -> Reading {
    Reading { name: "actor-0".to_owned(), role: Role::Actor, exposition: Exposition::parse(exposition), usage: None }
}

/// A learner that tells this.
pub(in crate::bench) fn learner(exposition: &str) -> Reading {
    Reading { name: "learner".to_owned(), role: Role::Learner, ..actor(exposition) }
}

/// A process of these threads: id, name, CPU time.
pub(in crate::bench) fn usage(threads: &[(u64, &str, f64)]) -> Usage {
    let thread = |&(id, name, cpu_seconds): &(u64, &str, f64)| ThreadUsage { id, name: name.to_owned(), cpu_seconds };
    Usage {
        cpu_seconds: threads.iter().map(|(.., cpu)| cpu).sum(),
        threads: threads.iter().map(thread).collect(),
        memory_bytes: Some(64 << 20),
    }
}

#[test]
fn a_key_that_does_not_exist_is_refused_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let args: RunArgs = args(&format!("--runs {} --set learner.speed=1", folder.path().display()));
    let error = measure(&args, args.times().unwrap()).unwrap_err();
    assert!(format!("{error:#}").contains("learner.speed"), "{error:#}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn a_learner_trains_from_its_first_step_on() {
    let told = |steps: &str| [(0, Role::Learner, Exposition::parse(steps)), (1, Role::Actor, Exposition::default())];
    assert!(!has_trained(&told("")));
    assert!(!has_trained(&told("zerofleet_learner_steps_total 0")));
    assert!(has_trained(&told("zerofleet_learner_steps_total 1")));
}
