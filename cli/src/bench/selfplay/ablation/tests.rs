use super::*;
use crate::bench::selfplay;
use crate::bench::tests::{args, parsed};

const TINY: &str = "--game tic_tac_toe --channels 16 --blocks 1 --threads 2 --games 4 --simulations 8 --batches 2 \
                    --seconds 0.02 --repeats 1 --device cpu --kernel auto";

#[test]
fn every_step_is_measured_without_what_the_steps_before_it_lack() {
    let ablation = measure(&args(TINY), selfplay::measure).unwrap();
    let without: Vec<&str> = ablation.steps.iter().map(|step| step.without.as_str()).collect();
    assert_eq!(without.len(), STEPS.len());
    assert_eq!((without[0], without[9]), ("nothing", "compact experience"));
    assert!(ablation.steps.iter().all(|step| step.positions_per_second > 0.0));
    let last = &ablation.steps[9];
    assert_eq!((last.mean_batch, last.over_naive), (1.0, 1.0));
    assert!(last.engine.contains("libtorch"), "{}", last.engine);
    assert!(ablation.experience_saved > 0.0, "{}", ablation.experience_saved);
}

#[test]
fn the_options_of_a_step_are_options_of_the_command() {
    let mut step = args::<Args>(&format!("{TINY} --in-flight 3 --pin"));
    for (without, take_away) in STEPS {
        take_away(&mut step);
        let options = options(&step);
        let read: Args = parsed(options.iter().map(String::as_str)).unwrap();
        assert_eq!(format!("{:?}", read.whole()), format!("{:?}", step.whole()), "without {without}");
        assert_eq!(
            (read.kernel, read.precision, read.device, read.whole_only, read.in_flight, read.pin),
            (step.kernel, step.precision, step.device, true, step.in_flight, step.pin),
            "without {without}"
        );
    }
}

#[test]
fn the_worth_of_a_step_is_what_it_costs_to_go_without() {
    let reports = [400.0, 100.0, 10.0].map(|speed| {
        let mut report = selfplay::tests::report();
        report.whole.positions_per_second = speed;
        report.whole.experience_bytes_per_position = if speed < 50.0 { 500.0 } else { 50.0 };
        ("this", vec!["--games".to_owned()], report)
    });
    let ablation = ablation(&args(TINY), &reports);
    assert_eq!(ablation.steps.iter().map(|step| step.worth).collect::<Vec<_>>(), [None, Some(4.0), Some(10.0)]);
    assert_eq!((ablation.full_over_naive, ablation.experience_saved), (40.0, 0.9));
    let table = markdown::markdown(&ablation);
    assert!(table.contains("**40.0×** in positions/s, **90.0 %** less memory"), "{table}");
}
