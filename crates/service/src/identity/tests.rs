use std::path::PathBuf;

use super::*;

fn run(directory: &str) -> RunSection {
    RunSection { directory: PathBuf::from(directory), ..RunSection::default() }
}

#[test]
fn a_run_is_called_like_its_folder_unless_it_has_a_name() {
    assert_eq!(Identity::new("actor", &run("runs/hex"), "").run, "hex");
    assert_eq!(Identity::new("actor", &run("/data"), "nightly").run, "nightly");
    assert_eq!(Identity::new("actor", &run("/"), "").run, "default");
}

#[test]
fn every_process_says_in_its_metrics_what_it_is() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let identity = Identity { version: "1.2.3+abc".to_owned(), ..Identity::new("arena", &run("runs/hex"), "") };
    metrics::with_local_recorder(&recorder, || identity.tell());
    let text = recorder.handle().render();
    let line = "zerofleet_process_info{role=\"arena\",version=\"1.2.3+abc\",run=\"hex\",game=\"connect_four\"} 1";
    assert!(text.contains(line), "{text}");
}
