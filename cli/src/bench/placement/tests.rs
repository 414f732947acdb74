use super::*;
use crate::bench::tests::{args, parsed};
use crate::bench::training_run::tests::{actor, learner, usage};
use crate::config::Fleet as Config;

/// What is made of a run in which the learner trained on `device`.
pub(super) fn report(device: &str) -> Report {
    let played = "zerofleet_actor_positions_total 5000\n\
                  zerofleet_actor_evaluations_total 60000\n\
                  zerofleet_actor_batches_total 1000\n\
                  zerofleet_actor_evaluator{evaluator=\"CPU kernel, avx2\"} 4";
    let trained = format!(
        "zerofleet_learner_steps_total 20\n\
         zerofleet_learner_positions_total 5120\n\
         zerofleet_learner_device{{device=\"{device}\",precision=\"f32\"}} 1"
    );
    let threads: Vec<(u64, &str, f64)> = (0..9).map(|id| (id, "train", 1.0)).collect();
    let trained = training_run::Reading { usage: Some(usage(&threads)), ..learner(&trained) };
    let window = Window { seconds: 10.0, begin: vec![actor(""), learner("")], end: vec![actor(played), trained] };
    let measured = Measured { config: Config::default(), actors: 1, window, accelerators: Vec::new() };
    super::report(&args("--game tic_tac_toe"), &measured)
}

#[test]
fn a_run_on_the_cpu_alone_needs_no_second_one() {
    assert!(!report("cpu").is_accelerated());
    assert!(report("cuda").is_accelerated());
}

#[test]
fn a_report_is_read_back() {
    let report = report("cuda:1");
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
}

#[test]
fn what_puts_everything_on_the_cpu_are_keys_of_the_run_file() {
    for set in ON_THE_CPU {
        let (_, key) = set.split_once('.').unwrap();
        let (key, _) = key.split_once('=').unwrap();
        let section = toml::to_string(&Config::default()).unwrap();
        assert!(section.contains(&format!("\n{key} = ")), "{set}");
    }
}

#[test]
fn options_that_make_no_sense_are_named() {
    let error = |line: &str| format!("{:#}", run(&args(line), &mut Vec::new()).unwrap_err());
    assert!(error("--seconds 0").contains("--seconds"));
    assert!(error("--compare /nowhere/earlier.json").contains("/nowhere/earlier.json"));
    assert!(parsed::<Args>(["--game", "chess"]).is_err());
}
