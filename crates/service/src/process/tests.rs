use anyhow::Context as _;
use clap::Parser as _;

use super::*;

#[derive(Debug, clap::Parser)]
struct Args {
    #[command(flatten)]
    common: CommonArgs,
}

#[test]
fn a_chain_is_one_sentence_without_repetition() {
    let cause = std::io::Error::other("disk full");
    let error = anyhow::Error::new(cause).context("write step 12").context("save checkpoint");
    assert_eq!(chain(&error), "save checkpoint: write step 12: disk full");
    let repeated = Err::<(), _>(anyhow::anyhow!("disk full")).context("save: disk full").unwrap_err();
    assert_eq!(chain(&repeated), "save: disk full");
    assert_eq!(chain(&anyhow::anyhow!("two\nlines")), "two; lines");
}

#[test]
fn refused_configurations_exit_with_2_and_failures_with_1() {
    let refused = anyhow::Error::new(ConfigError::invalid("learner.batch", "must be at least 1")).context("build");
    assert_eq!(exit_status(&refused), EXIT_USAGE);
    assert_eq!(chain(&refused), "build: learner.batch: must be at least 1");
    assert_eq!(exit_status(&anyhow::anyhow!("disk full")), EXIT_FAILURE);
}

#[test]
fn common_options_have_defaults() {
    let common = Args::parse_from(["learner"]).common;
    assert_eq!((common.admin.port(), common.listen.port(), common.log_level.as_str()), (0, 0, "info"));
    let common = Args::parse_from(["learner", "--set", "a.b=1", "--set", "c.d=2", "--log-format", "json"]).common;
    assert_eq!((common.sets, common.log_format), (vec!["a.b=1".to_owned(), "c.d=2".to_owned()], LogFormat::Json));
}
