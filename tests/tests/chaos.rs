//! Kills, removes, pauses, disconnects and slows down any process at any time, on a virtual network.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::BTreeSet;
use std::time::Instant;

use tests::chaos::{Fleet, Network, Plan, Recoveries, Round, Schedule, Witness};

/// Returns the network; `None` if this machine cannot create one, which fails the test if `ZEROFLEET_CHAOS_SECONDS` is
/// set.
#[allow(clippy::print_stderr, reason = "the output of tests must show what was skipped")]
fn network(seed: u64) -> Option<Network> {
    match Network::new(Fleet::hosts(), seed) {
        Ok(network) => Some(network),
        Err(error) => {
            assert!(std::env::var_os("ZEROFLEET_CHAOS_SECONDS").is_none(), "no network can be made: {error:#}");
            eprintln!("SKIPPED: chaos needs Linux, root, /dev/net/tun and `ip`: {error:#}");
            None
        }
    }
}

/// The test prints its seed and faults even if it passes, so that they can be repeated.
#[test]
#[allow(clippy::print_stderr, reason = "a failed test shows its seed, and a long one how far it is")]
fn under_any_faults_no_acknowledged_trajectory_is_lost_or_doubled_and_all_actors_rejoin() {
    let plan = Plan::from_environment().unwrap();
    eprintln!("ZEROFLEET_CHAOS_SEED={} ZEROFLEET_CHAOS_SECONDS={}", plan.seed, plan.length.as_secs());
    let Some(network) = network(plan.seed) else { return };
    let mut fleet = Fleet::new(network).unwrap();
    fleet.enter().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let _on_it = runtime.enter();
    fleet.start().unwrap();
    let witness = Witness::start(&fleet.replay_endpoint());

    let start = Instant::now();
    let (mut recoveries, mut broken, mut told_once) = (Recoveries::default(), Vec::new(), BTreeSet::new());
    for round in Schedule::new(plan.seed, plan.lengths()).take_while(|_| start.elapsed() < plan.length) {
        let Round(faults) = &round;
        let names: Vec<String> = faults.iter().map(ToString::to_string).collect();
        eprint!("{:7.1} s  {}", start.elapsed().as_secs_f64(), names.join(", and "));
        let healed = fleet.suffer(&round).unwrap();
        let recovery = fleet.recover(&round, healed, &witness).unwrap();
        let [service, actors, training] =
            [recovery.service, recovery.actors, recovery.training].map(|time| time.as_secs_f64());
        eprintln!(": back in {service:.1} s, actors in {actors:.1} s, training in {training:.1} s");
        match faults[..] {
            [fault] => recoveries.after(fault.service, fault.kind, recovery),
            _ => recoveries.after_two(recovery),
        }
        if recovery.actors > plan.rejoin_max {
            broken.push(format!("{}: actors were back after {actors:.1} s", names.join(", and ")));
        }
        for what in runtime.block_on(fleet.check(&witness)).unwrap() {
            // A loss is permanent: it is reported with its cause.
            if told_once.insert(what.clone()) {
                broken.push(format!("{}: {what}", names.join(", and ")));
            }
        }
    }

    broken.extend(runtime.block_on(fleet.check(&witness)).unwrap());
    let acknowledged = witness.acknowledged();
    drop(witness);
    let ledger = runtime.block_on(fleet.finish()).unwrap();
    broken.extend(ledger.faults());
    broken.extend(ledger.lost_to_witness(acknowledged));
    eprintln!("{} trajectories, {acknowledged} of them of the witness; {:?}", ledger.len(), fleet.errors());
    let table = recoveries.table();
    eprintln!("{table}");
    if let Some(path) = plan.report {
        std::fs::write(path, table).unwrap();
    }
    assert!(broken.is_empty(), "seed {}:\n{}", plan.seed, broken.join("\n"));
}
