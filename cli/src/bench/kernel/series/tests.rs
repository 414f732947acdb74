use network::Precision;

use super::super::NetworkSize;
use super::*;

const ENGINE: Engine = Engine::Openvino(Precision::F32);

fn with_course<T>(body: impl FnOnce(&Course<'_>) -> T) -> T {
    let architecture = NetworkSize { blocks: 1, channels: 16, height: 3, width: 3 }.architecture();
    let (time, batch_time_max) = (Duration::from_millis(1), Duration::from_secs(2));
    body(&Course { architecture: &architecture, threads: 2, seed: 1, time, batch_time_max })
}

#[test]
fn the_median_or_the_best_of_the_turns_is_reported() {
    let mut series = Series::new(ENGINE, Ok(Source::Python));
    for (turn, speed) in [30.0, 10.0, 20.0].into_iter().enumerate() {
        let ns = 1000.0 + turn as f64;
        let first = [(Stage::Inner(0), 1.5 * ns), (Stage::Block(0), 0.5 * ns)];
        let second = [(Stage::Inner(1), ns), (Stage::Block(1), 2.0 * ns)];
        series.add(8, speed, &[&[(Stage::Stem, ns)][..], &first, &second].concat());
    }
    let report = series.report(Turn::Median, Some(100));
    assert_eq!((report.best(), report.at(8), report.at(1)), (Some(20.0), Some(20.0), None));
    let expected = LayerTimes { batch: 8, stem_ns: 1001.0, block_ns: vec![2002.0, 3003.0], ..LayerTimes::default() };
    assert_eq!(report.layers, [expected]);
    let report = series.report(Turn::Best, Some(100));
    assert_eq!((report.best(), report.layers[0].stem_ns), (Some(30.0), 1000.0));
}

#[test]
fn the_share_is_of_the_peak_that_was_measured_beside_it() {
    let mut series = Series::new(ENGINE, Ok(Source::Python));
    series.add(1, 5.0, &[]);
    series.peaks = vec![900.0, 1000.0, 1100.0];
    assert_eq!(series.report(Turn::Median, Some(100)).speeds[0].share_of_peak, Some(0.5));
    assert_eq!(series.report(Turn::Median, None).speeds[0].share_of_peak, None);
}

#[test]
fn batches_that_would_take_too_long_are_left_out() {
    let mut series = Series::new(ENGINE, Ok(Source::Python));
    with_course(|course| {
        assert!(!series.takes_too_long(1, course), "nothing is known yet");
        // Two threads make 16 positions/s together: 16 in a batch of each take two seconds.
        series.add(1, 16.0, &[]);
        assert!(!series.takes_too_long(16, course));
        assert!(series.takes_too_long(17, course));
        series.measure(17, course, None);
    });
    assert_eq!(series.report(Turn::Median, None).speeds.len(), 1);
    assert_eq!(series.failure, None);
}

#[test]
fn who_cannot_be_had_or_fails_says_why_and_is_not_asked_again() {
    let mut missing = Series::new(ENGINE, Err(anyhow::anyhow!("no wheel").context("install it")));
    let mut failing = Series::new(ENGINE, Ok(Source::Python));
    with_course(|course| {
        for series in [&mut missing, &mut failing] {
            series.measure(1, course, None);
            series.measure_peak(course).unwrap();
        }
    });
    assert_eq!(missing.report(Turn::Median, None).not_measured.as_deref(), Some("install it: no wheel"));
    assert_eq!(failing.report(Turn::Median, None).not_measured.as_deref(), Some("nobody asked for it"));
}
