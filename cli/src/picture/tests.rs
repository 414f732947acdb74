use super::*;

/// A run that learns evenly for fifteen minutes.
fn run() -> Vec<Readings> {
    let reading = |i: i32| {
        let t = f64::from(i) / 60.0;
        let mut r = Readings { elapsed_seconds: t * 900.0, loss_total: Some(2.5 - t), ..Readings::default() };
        (r.loss_policy, r.loss_value) = (Some(1.6 - 0.6 * t), Some(0.9 - 0.4 * t));
        (r.elo, r.elo_low, r.elo_high) = (Some(900.0 * t), Some(900.0 * t - 80.0), Some(900.0 * t + 80.0));
        r.accuracy.insert("raw/preserving/overall".to_owned(), 0.4 + 0.4 * t);
        r.accuracy.insert("search/preserving/overall".to_owned(), 0.5 + 0.45 * t);
        r.opponents.insert("playouts-50".to_owned(), 350.0);
        r
    };
    (0..=60).map(reading).collect()
}

fn drawn(readings: &[Readings]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.svg");
    draw(&path, "a run", readings).unwrap();
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn every_line_is_named_with_its_last_value() {
    let text = drawn(&run());
    for name in ["95 % with search", "80 % raw policy", "1.53 total", "900 weights", "350 playouts-50", "minutes"] {
        assert!(text.contains(name), "{name} is not in {text}");
    }
}

#[test]
fn what_was_not_measured_is_called_so() {
    assert_eq!(drawn(&[]).matches("not measured").count(), 3);
    let readings = [Readings { elapsed_seconds: 5.0, elo: Some(f64::NAN), ..Readings::default() }];
    assert_eq!(drawn(&readings).matches("not measured").count(), 3);
}

#[test]
fn names_are_moved_apart_and_stay_inside() {
    assert_eq!(moved_apart(&[0, 5, 90, 100], 0, 100), [0, 17, 83, 100]);
    assert!(moved_apart(&[], 0, 100).is_empty());
}

#[test]
fn repetitions_of_a_measurement_are_left_out() {
    let points = vec![(0.0, 1.0), (1.0, 1.0), (2.0, 2.0), (3.0, 2.0), (4.0, 2.0)];
    assert_eq!(measured(points), [(0.0, 1.0), (2.0, 2.0), (4.0, 2.0)]);
}

#[test]
fn smoothing_averages_over_what_there_is_on_either_side() {
    let line: Vec<(f64, f64)> = (0..20).map(|i| (f64::from(i), 2.0 * f64::from(i))).collect();
    let smooth = smoothed(&line);
    assert_eq!(smooth[4..16], line[4..16]);
    assert_eq!((smooth[0].1, smooth[19].1), (4.0, 34.0));
}
