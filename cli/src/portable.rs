//! The part of a run file that applies on every machine.

use run_file::RunFile;

/// Resets keys with paths, addresses, devices and credentials to the defaults, and the arguments of an environment,
/// which may contain any of these.
pub(crate) fn portable(mut config: RunFile) -> RunFile {
    let plain = RunFile::default();
    config.run.directory = plain.run.directory;
    config.environment.python = plain.environment.python;
    config.environment.modules = plain.environment.modules;
    config.environment.pass_variables = plain.environment.pass_variables;
    config.environment.arguments = plain.environment.arguments;
    config.replay.directory = plain.replay.directory;
    config.replay.archive = plain.replay.archive;
    config.learner.replay = plain.learner.replay;
    config.learner.boards = plain.learner.boards;
    config.learner.group = plain.learner.group;
    config.learner.index = plain.learner.index;
    config.learner.group_trusted = plain.learner.group_trusted;
    config.learner.device = plain.learner.device;
    config.learner.initial_weights = plain.learner.initial_weights;
    config.arena.weights = plain.arena.weights;
    config.arena.device = plain.arena.device;
    RunFile {
        actor: plain.actor,
        inference: plain.inference,
        security: plain.security,
        telemetry: plain.telemetry,
        ..config
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use service::config::{Sources, compared};

    use super::*;

    #[test]
    fn every_key_with_free_text_is_reset_except_names_of_games_and_tables() {
        let mut config = RunFile::default();
        for (section, keys) in RunFile::keys() {
            for name in keys.into_iter().map(|key| key.name) {
                let sets = match section {
                    "replay.tables" | "learner.boards" => vec![format!("{section}=[{{{name}=\"/secret\"}}]")],
                    _ => ["/secret", "[\"/secret\"]"].map(|value| format!("{section}.{name}={value}")).into(),
                };
                for set in sets {
                    let sources = Sources { file: None, env: iter::empty(), sets: vec![set] };
                    // Numbers, choices and devices refuse the text.
                    config = sources.layers().unwrap().load_over(&config).unwrap_or(config);
                }
            }
        }
        let filled = service::config::print(&config).unwrap();
        assert!(filled.matches("/secret").count() > 25, "{filled}");
        let kept = compared(&portable(config), &RunFile::default()).unwrap();
        let kept = kept.iter().filter(|key| key.other.is_some()).map(|key| format!("{}.{}", key.section, key.key));
        assert_eq!(kept.collect::<Vec<_>>(), ["replay.tables", "run.boards", "run.game"]);
    }
}
