use super::*;

#[test]
fn unknown_levels_are_refused() {
    let error = init_tracing(LogFormat::Text, "learner=loud").unwrap_err();
    let expected =
        "--log-level learner=loud is not a level (error, warn, info, debug, trace) or a list of target=level";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn histograms_have_buckets_in_seconds() {
    let recorder = builder().unwrap().build_recorder();
    metrics::with_local_recorder(&recorder, || metrics::histogram!("step_seconds").record(0.3));
    let text = recorder.handle().render();
    assert!(text.contains("step_seconds_bucket{le=\"0.2\"} 0"), "{text}");
    assert!(text.contains("step_seconds_bucket{le=\"0.5\"} 1"), "{text}");
}

#[test]
fn histograms_of_how_far_something_is_behind_have_buckets_in_versions() {
    let recorder = builder().unwrap().build_recorder();
    metrics::with_local_recorder(&recorder, || metrics::histogram!("sample_lag_versions").record(300.0));
    let text = recorder.handle().render();
    assert!(text.contains("sample_lag_versions_bucket{le=\"200\"} 0"), "{text}");
    assert!(text.contains("sample_lag_versions_bucket{le=\"500\"} 1"), "{text}");
}
