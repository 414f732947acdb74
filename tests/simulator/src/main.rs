//! The command line of the simulator: runs seeds, shrinks failing seeds, and prints the stories.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a person called it")]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use replay_server::defect::Defect;
use simulator::arguments::{self, Arguments};
use simulator::plan::plan;
use simulator::run::{Outcome, Story, run_with};
use simulator::shrink::shrink;

/// Maximum runs for shrinking a plan.
const SHRINK_RUNS_MAX: usize = 1_500;

/// Number of events in the printed story, from the end.
const STORY_EVENTS: usize = 120;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let revision = arguments::revision();
    let first = match arguments.first_seed(revision.as_deref()) {
        Ok(first) => first,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    let revision = revision.as_deref().unwrap_or("an unknown revision");
    let start = Instant::now();
    let limit = arguments.minutes.map(|minutes| Duration::from_secs_f64(minutes * 60.0));
    let mut fired = BTreeMap::<&'static str, u64>::new();
    let (mut seeds, mut events, mut failed) = (0_u64, 0, 0_u64);
    for seed in first..first.saturating_add(arguments.seeds) {
        if limit.is_some_and(|limit| start.elapsed() > limit) {
            break;
        }
        let outcome = run_with(seed, &plan(seed), Story::Dropped, arguments.defect);
        seeds += 1;
        events += outcome.events;
        outcome.fired.iter().for_each(|(branch, times)| *fired.entry(branch).or_default() += times);
        let again = || run_with(seed, &plan(seed), Story::Dropped, arguments.defect);
        if arguments.twice && again().digest != outcome.digest {
            println!("seed {seed} has two digests, at {revision}");
            failed += 1;
        }
        if let Some(violation) = &outcome.violation {
            println!("seed {seed} at {revision}: {violation}");
            failed += 1;
            if !arguments.all {
                tell(seed, &outcome, arguments.defect);
                break;
            }
        }
    }
    for (branch, times) in &fired {
        println!("{branch:<60} {times:>12}");
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{seeds} seeds from {first}, {events} events, {failed} failed, {seconds:.1} s, at {revision}");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Shrinks a failing seed and prints the story.
fn tell(seed: u64, outcome: &Outcome, defect: Option<Defect>) {
    let Some(violation) = &outcome.violation else { return };
    let steps = shrink(seed, &plan(seed), violation.promise, defect, SHRINK_RUNS_MAX);
    let run = run_with(seed, &steps, Story::Kept, defect);
    let skipped = run.story.len().saturating_sub(STORY_EVENTS);
    println!("shrunk to {} steps: {:?}", steps.len(), steps.iter().map(|step| step.kind).collect::<Vec<_>>());
    if skipped > 0 {
        println!("({skipped} earlier events are left out)");
    }
    run.story.iter().skip(skipped).for_each(|sentence| println!("  {sentence}"));
}
