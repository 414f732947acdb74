use std::iter;

use fleet::plan;

use super::*;

/// A valid study file, in which each test replaces the part under test.
const STUDY: &str = r#"
[study]
trials = 8

[base]
game = "tic_tac_toe"
set = ["learner.device=cpu"]

[objective]
metric = "loss/total"
direction = "minimise"

[budget]
minutes = 3

[settings]
"learner.learning_rate" = { min = 1e-4, max = 1e-1, log = true }
learner.batch_size = { min = 32, max = 256, step = 32 }
"search.algorithm" = { choices = ["puct", "gumbel"] }
"#;

fn read(text: &str) -> anyhow::Result<Study> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rates.toml");
    std::fs::write(&file, text).unwrap();
    Study::read(&file)
}

/// Returns the error message for the study file with one part replaced.
fn refusal(part: &str, replacement: &str) -> String {
    assert!(STUDY.contains(part), "{part}");
    let error = read(&STUDY.replace(part, replacement)).expect_err(replacement);
    let text = service::chain(&error);
    text.split_once("rates.toml:").map_or(text.clone(), |(_, after)| format!("rates.toml:{after}"))
}

#[test]
fn a_study_is_read_with_its_name_from_the_file_and_its_settings_quoted_or_nested() {
    let study = read(STUDY).unwrap();
    assert_eq!((study.name.as_str(), study.trials, study.parallel), ("rates", 8, 1));
    let keys: Vec<&str> = study.settings.iter().map(|setting| setting.key.as_str()).collect();
    assert_eq!(keys, ["learner.batch_size", "learner.learning_rate", "search.algorithm"]);
    assert_eq!(study.halving.budgets, [3.0 / 9.0, 1.0]);
    let values =
        Values::from([("learner.batch_size".to_owned(), json!(64)), ("search.algorithm".to_owned(), json!("puct"))]);
    let options = study.base.arguments(&values);
    assert_eq!(options.sets, ["learner.device=cpu", "learner.batch_size=64", "search.algorithm=\"puct\""]);
    assert_eq!(plan::check_new(&options, iter::empty()).unwrap().learner.batch_size, 64);
    let described = study.describe();
    assert!(described.contains("study rates: 8 trials of 3 minutes, 1 at a time, proposed by TPE"), "{described}");
    assert!(described.contains("learner.learning_rate: 0.0001 to 0.1, logarithmic"), "{described}");
    assert!(described.contains("learner.batch_size: 32 to 256 in steps of 32"), "{described}");
}

#[test]
fn a_study_starts_from_a_run_file_and_tunes_a_key_in_it() {
    let folder = tempfile::tempdir().unwrap();
    // As `zerofleet tune batch --start start.toml` writes it.
    let start =
        "[run]\ngame = \"tic_tac_toe\"\n\n[learner]\nbatch_size = 96\nlearning_rate = 0.00424\nmicro_batch = 48\n";
    std::fs::write(folder.path().join("start.toml"), start).unwrap();
    let file = folder.path().join("rates.toml");
    std::fs::write(&file, STUDY.replace("game = \"tic_tac_toe\"", "config = \"start.toml\"")).unwrap();
    let study = Study::read(&file).unwrap();
    let learner = |values: &Values| plan::check_new(&study.base.arguments(values), iter::empty()).unwrap().learner;
    let base = learner(&Values::new());
    assert_eq!((base.batch_size, base.micro_batch, base.learning_rate), (96, 48, 0.00424));
    assert_eq!(learner(&Values::from([("learner.batch_size".to_owned(), json!(64))])).batch_size, 64);
}

#[test]
fn a_wrong_field_is_refused_by_its_name() {
    let cases = [
        ("trials = 8", "trials = 0", "study.trials: is 0, must be from 1 to 100000"),
        ("trials = 8", "trial = 8", "rates.toml:3:1: unknown field `trial`, expected one of `name`, `trials`"),
        ("trials = 8", "trials = 'many'", "rates.toml:3:10: invalid type: string \"many\""),
        ("trials = 8", "parallel = 0", "study.parallel: is 0"),
        ("trials = 8", "sampler = 'grid'", "rates.toml:3:11: unknown variant `grid`, expected `random` or `tpe`"),
        ("\"tic_tac_toe\"", "\"tic_tac\"", "base.game: "),
        (
            "set = [",
            "algorithm = 'alpha'\nset = [",
            "base.algorithm: `alpha` is not an algorithm; algorithms are alphazero, ",
        ),
        ("set = [", "actors = 0\nset = [", "base.actors: must be at least 1"),
        ("learner.device=cpu", "learner.devise=cpu", "unknown key learner.devise in --set learner.devise=cpu"),
        ("loss/total", "loss", "objective.metric: `loss` is not a metric of a run"),
        ("loss/total", "return/mean", "objective.metric: `return/mean` is not measured in tic_tac_toe"),
        ("\"minimise\"", "\"down\"", "rates.toml:11:13: unknown variant `down`"),
        ("minutes = 3", "minutes = 0", "budget.minutes: is 0, must be from"),
        ("minutes = 3", "minutes = 3\npositions = 5", "budget: needs minutes, or positions and minutes_max"),
        ("minutes = 3", "positions = 5", "budget.minutes_max: is missing"),
        (
            "minutes = 3",
            "positions = 8100\nminutes_max = 3",
            "budget.positions: trials are first compared at 900 positions, but training starts at 1000",
        ),
        (
            "minutes = 3",
            "minutes = 3\n[halving]\nreduction_factor = 1",
            "halving.reduction_factor: is 1, must be from 1.5",
        ),
        ("[budget]\nminutes = 3", "", "missing field `budget`"),
        ("min = 1e-4", "min = 0", "settings.learner.learning_rate.min: is 0, must be above 0 if log is true"),
    ];
    for (part, replacement, expected) in cases {
        let refusal = refusal(part, replacement);
        assert!(refusal.contains(expected), "{refusal} is not {expected}");
    }
}

#[test]
fn ranges_are_checked_against_the_run_before_any_trial() {
    let cases = [
        (
            "\"learner.learning_rate\"",
            "\"learner.learning_rat\"",
            "settings.learner.learning_rat: 0.0001 is refused: unknown key",
        ),
        (
            "max = 1e-1, log = true",
            "max = 1e9, log = true",
            "settings.learner.learning_rate: 1000000000.0 is refused: learner.learning_rate",
        ),
        (
            "max = 256",
            "max = 4096",
            "settings.learner.batch_size: 4096 is refused: learner.batch_size: is 4096, more than",
        ),
        ("\"puct\", \"gumbel\"", "\"puct\", \"other\"", "settings.search.algorithm: \"other\" is refused: "),
        (
            "min = 32, max = 256, step = 32",
            "min = 32.5, max = 256.0",
            "settings.learner.batch_size: 32.5 is refused: learner.batch_size",
        ),
        ("\"search.algorithm\"", "\"run.game\"", "settings.run.game: cannot be tuned: results of different games"),
        ("\"search.algorithm\"", "\"learner.device\"", "settings.learner.device: is also in base.set"),
    ];
    for (part, replacement, expected) in cases {
        let refusal = refusal(part, replacement);
        assert!(refusal.contains(expected), "{refusal} is not {expected}");
    }
}

#[test]
fn a_setting_that_is_no_range_or_there_twice_is_refused() {
    let refusal = |settings: &str| {
        let (before, _) = STUDY.split_once("[settings]").unwrap();
        service::chain(&read(&format!("{before}[settings]\n{settings}")).unwrap_err())
    };
    assert_eq!(refusal(""), "settings: contains no setting");
    assert!(refusal("\"learner.batch_size\" = 3").starts_with("settings.learner.batch_size: must be a range"));
    let twice = "\"learner.batch_size\" = {min = 1, max = 2}\nlearner.batch_size = {min = 1, max = 3}";
    assert_eq!(refusal(twice), "settings.learner.batch_size: is set twice");
}

#[test]
fn a_study_that_goes_on_keeps_its_definition_and_may_have_more_trials() {
    let begun = read(STUDY).unwrap();
    let check = |part: &str, replacement: &str| {
        let study = read(&STUDY.replace(part, replacement)).unwrap();
        study.check_definition(&begun.definition).map_err(|error| error.to_string())
    };
    assert_eq!(check("trials = 8", "trials = 80\nparallel = 3"), Ok(()));
    let error = check("max = 1e-1", "max = 1e-2").unwrap_err();
    let expected = "settings.learner.learning_rate.max: study rates was started with 0.1, not 0.01; restore";
    assert!(error.starts_with(expected), "{error}");
    let error = check("set = [", "set = [\"selfplay.games=8\", ").unwrap_err();
    assert!(error.starts_with("base.selfplay.games: study rates was started with 64, not 8"), "{error}");
    let error = check("set = [", "actors = 2\nset = [").unwrap_err();
    assert!(error.starts_with("base_options"), "{error}");
}

#[test]
fn the_study_of_the_guide_is_accepted() {
    let guide = include_str!("../../../../docs/tuning.md");
    let (_, after) = guide.split_once("```toml\n").unwrap();
    let (study, _) = after.split_once("```").unwrap();
    let study = read(study).unwrap();
    let described = study.describe().replace("study rates", "study study");
    assert!(guide.contains(&described), "the guide does not show this:\n{described}");
}
