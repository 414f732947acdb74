//! Injects faults of processes, network, disks, limits, clocks and certificates into a fleet at any time.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use tests::chaos::checker::violations;
use tests::chaos::{Disturbance, Fleet, Kind, Machine, Network, Plan, Recoveries, Round, Schedule, Witnesses};
use tokio::runtime::Runtime;

/// Returns the network; `None` if this machine cannot create one, which fails the test if `ZEROFLEET_CHAOS_SECONDS` is
/// set.
fn network(seed: u64) -> Option<Network> {
    match Network::new(Fleet::hosts(), seed) {
        Ok(network) => Some(network),
        Err(error) => {
            assert!(std::env::var_os("ZEROFLEET_CHAOS_SECONDS").is_none(), "no network can be made: {error:#}");
            tests::skip("tun", format_args!("chaos needs Linux, root, /dev/net/tun and `ip`: {error:#}"));
            None
        }
    }
}

/// Returns the faults that this machine can inject, and prints all other faults.
#[allow(clippy::print_stderr, reason = "the output of tests must show what was left out")]
fn machine() -> Machine {
    let machine = Machine::inspect();
    for kind in Kind::ALL {
        if let Some(reason) = machine.lacks(kind) {
            eprintln!("left out: {kind}: {reason}");
        }
    }
    machine
}

/// Returns the path of the histories: next to the report, else among the temporary files of the build.
fn histories(plan: &Plan) -> PathBuf {
    let otherwise = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("chaos-{}.md", plan.seed));
    plan.report.clone().unwrap_or(otherwise).with_extension("jsonl")
}

/// A test run with the findings so far.
struct Run {
    plan: Plan,
    machine: Machine,
    fleet: Fleet,
    witnesses: Witnesses,
    recoveries: Recoveries,
    disturbances: Vec<Disturbance>,
    broken: Vec<String>,
    reported: BTreeSet<String>,
}

impl Run {
    /// Injects round after round. After each, checks that every process works and nothing is lost.
    #[allow(clippy::print_stderr, reason = "a long test shows how far it is")]
    fn rounds(&mut self, runtime: &Runtime) -> anyhow::Result<()> {
        let start = Instant::now();
        for Round(mut faults) in Schedule::new(self.plan.seed, self.plan.lengths()) {
            if start.elapsed() >= self.plan.length {
                break;
            }
            let is_wanted = |kind: Kind| kind.to_string().contains(&self.plan.faults);
            faults.retain(|fault| self.machine.lacks(fault.kind).is_none() && is_wanted(fault.kind));
            if faults.is_empty() {
                continue;
            }
            let names: Vec<String> = faults.iter().map(ToString::to_string).collect();
            let what = names.join(", and ");
            eprint!("{:7.1} s  {what}", start.elapsed().as_secs_f64());
            let may_fail = faults.iter().any(|fault| fault.kind != Kind::Certificates);
            let from = self.witnesses.history().now();
            // Until the round is over, any request may fail.
            self.disturbances.push(Disturbance { what: what.clone(), from, to: Duration::MAX, may_fail });
            self.round(&what, &Round(faults), runtime)?;
            let to = self.witnesses.history().now();
            self.disturbances.last_mut().context("there is a round")?.to = to;
        }
        Ok(())
    }

    #[allow(clippy::print_stderr, reason = "a long test shows how far it is")]
    fn round(&mut self, what: &str, round: &Round, runtime: &Runtime) -> anyhow::Result<()> {
        let healed = self.fleet.suffer(round)?;
        let recovery = self.fleet.recover(round, healed, &self.witnesses)?;
        let [service, actors, training] =
            [recovery.service, recovery.actors, recovery.training].map(|time| time.as_secs_f64());
        eprintln!(": back in {service:.1} s, actors in {actors:.1} s, training in {training:.1} s");
        match round.0[..] {
            [fault] => self.recoveries.after(fault.service, fault.kind, recovery),
            _ => self.recoveries.after_two(recovery),
        }
        if recovery.actors > self.plan.rejoin_max {
            self.broken.push(format!("{what}: actors were back after {actors:.1} s"));
        }
        for violation in runtime.block_on(self.fleet.check(&self.witnesses))? {
            // A loss is permanent: it is reported with the cause.
            if self.reported.insert(violation.clone()) {
                self.broken.push(format!("{what}: {violation}"));
            }
        }
        Ok(())
    }

    /// Stops every process and checks the whole history.
    #[allow(clippy::print_stderr, reason = "the output of the test is part of its report")]
    fn finish(&mut self, runtime: &Runtime) -> anyhow::Result<()> {
        runtime.block_on(self.witnesses.finish())?;
        self.broken.extend(runtime.block_on(self.fleet.check(&self.witnesses))?);
        let (listings, ledger) = runtime.block_on(self.fleet.finish(&self.witnesses))?;
        self.broken.extend(ledger.faults());
        let operations = self.witnesses.history().operations();
        self.broken.extend(violations(&operations, &listings, &self.disturbances));
        eprintln!("{} trajectories, {} operations of witnesses", ledger.len(), operations.len());
        Ok(())
    }
}

/// The test prints seed and faults even if it passes, so that they can be repeated.
#[test]
#[allow(clippy::print_stderr, reason = "a failed test shows its seed and what it found")]
fn under_any_faults_no_acknowledged_trajectory_is_lost_or_doubled_and_all_actors_rejoin() {
    let plan = Plan::from_environment().unwrap();
    eprintln!("ZEROFLEET_CHAOS_SEED={} ZEROFLEET_CHAOS_SECONDS={}", plan.seed, plan.length.as_secs());
    let Some(network) = network(plan.seed) else { return };
    let machine = machine();
    let is_known =
        Kind::ALL.iter().any(|kind| machine.lacks(*kind).is_none() && kind.to_string().contains(&plan.faults));
    assert!(is_known, "no fault that this machine can inject is named `{}`", plan.faults);
    let mut fleet = Fleet::new(network, &machine, plan.length).unwrap();
    fleet.enter().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let _on_it = runtime.enter();
    fleet.start().unwrap();
    let witnesses = fleet.witnesses();
    let (recoveries, disturbances, broken, reported) = Default::default();
    let mut run = Run { plan, machine, fleet, witnesses, recoveries, disturbances, broken, reported };

    let ended = run.rounds(&runtime).and_then(|()| run.finish(&runtime));
    let path = histories(&run.plan);
    run.witnesses.history().write(&path, &run.disturbances).unwrap();
    eprintln!("histories: {}", path.display());
    for (service, errors) in run.fleet.errors() {
        eprintln!("{service}: {} errors in its log, the last of them {:?}", errors.len(), errors.last());
    }
    let table = run.recoveries.table();
    eprintln!("{table}");
    if let Some(path) = &run.plan.report {
        std::fs::write(path, table).unwrap();
    }
    if let Err(error) = ended {
        run.broken.push(format!("{error:#}"));
    }
    assert!(run.broken.is_empty(), "seed {}:\n{}", run.plan.seed, run.broken.join("\n"));
}
