//! TensorBoard's reader reads the event files of a run that was stopped and resumed.

use std::path::Path;
use std::time::Duration;

use tests::{Python, TrainingRun};

const DEADLINE: Duration = Duration::from_secs(120);
const VERSION: &str = "zerofleet_learner_weights_version";
const VALIDATED: &str = "zerofleet_learner_validation_weights_version";

#[test]
fn tensorboard_reads_scalars_histograms_and_settings_of_a_run_that_was_resumed() {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("python");
    let packages = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tensorboard");
    let Some(tensorboard) = Python::with(&python.join("tensorboard-requirements.txt"), &packages).unwrap() else {
        tests::skip_python("3.10");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let mut run = TrainingRun::new(folder.path(), folder.path()).unwrap();
    for setting in
        ["learner.histogram_publications=1", "learner.validation_share=0.2", "learner.publish_interval_seconds=0.5"]
    {
        run.set(setting);
    }
    let mut version = 0.0;
    for _ in 0..2 {
        run.start().unwrap();
        run.until("versions are trained and validated", DEADLINE, |run| {
            run.metric("learner", VERSION) > Some(version + 3.0) && run.metric("learner", VALIDATED) > Some(version)
        })
        .unwrap();
        version = run.metric("learner", VERSION).unwrap();
        run.stop().unwrap();
    }
    let run_folder = run.directory().to_str().unwrap().to_owned();
    let read = tensorboard.run(&python.join("event_files.py"), &[&run_folder, "2"], &python).unwrap();
    assert!(read.contains("histograms of"), "{read}");
}
