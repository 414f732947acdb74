use clap::Parser as _;

use super::*;
use crate::muzero::ablation::variants;
use crate::tests::{args, parsed};

#[test]
fn the_options_of_a_loop_are_options_of_its_command() {
    let line = "--game breakout --blocks 3 --simulations 7 --leaves 2 --loop-seconds 0.5 --threads 3 --seed 9";
    let Args { game, workload, variant, .. } = args::<Args>(line);
    for (name, variant) in variants(variant) {
        let words = [workload.words(game), variant.words()].concat();
        let read: Args = parsed(words.iter().map(String::as_str)).unwrap();
        assert_eq!((&read.workload, read.variant, read.game), (&workload, variant, game), "{name}");
        let program = ["zerofleet-bench", "muzero-loop"].map(str::to_owned);
        crate::Bench::try_parse_from(program.into_iter().chain(words)).unwrap();
    }
}

#[test]
fn each_loop_goes_without_one_optimisation_and_the_last_without_all() {
    let full = args::<Args>("").variant;
    let differences = |variant: Variant| {
        let [full, other] = [full.words(), variant.words()];
        let changed = full.chunks(2).zip(other.chunks(2)).filter(|(full, other)| full != other);
        changed.map(|(option, _)| option[0].clone()).collect::<Vec<_>>()
    };
    let all: Vec<_> = variants(full).into_iter().map(|(_, variant)| differences(variant)).collect();
    let [own, without @ .., naive] = &all[..] else { panic!("{all:?}") };
    assert!(own.is_empty());
    let mut removed = without.concat();
    removed.sort();
    let mut naive = naive.clone();
    naive.sort();
    assert_eq!(naive, removed, "no option is changed twice");
}

#[test]
fn an_iteration_counts_once_its_steps_and_its_update_are_complete() {
    let measured = |steps, updates| Measured { seconds: 1.0, steps, simulations: 0, updates, latent_bytes: 0 };
    assert_eq!(measured(1024, 3).iterations(256), 3.0);
    assert_eq!(measured(512, 3).iterations(256), 2.0);
}

#[test]
fn threads_have_equal_shares_of_the_environments() {
    let shares = |threads, environments| args::<Args>(&format!("--threads {threads}")).workload.shares(environments);
    assert_eq!(shares(3, 256), [85, 85, 86]);
    assert_eq!(shares(4, 1), [1]);
}

#[test]
fn a_loop_that_fails_ends_all_its_threads() {
    // The kernel takes no networks of 12 channels, and is asked for no other engine.
    let line =
        "--channels 12 --game breakout --kernel portable-f32 --training-precision f32 --positions 10 --loop-seconds 0";
    let error = format!("{:#}", measure(&args(line)).unwrap_err());
    assert!(error.contains("12"), "{error}");
}
