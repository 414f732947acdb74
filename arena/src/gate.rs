//! Decides which weights version the actors use, if the run has a gate: the latest version that has passed the gate.
//!
//! The verdict depends only on the games in the ledger, so that a restart changes no verdict. Start with `Gate`.

use std::path::{Path, PathBuf};

use run_file::arena::GateRule;
use strength::ledger::{Ledger, Player};
use strength::sprt::State;
use version_store::accepted;
use weights::WeightsVersion;

/// The verdict on a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// More games are needed.
    Pending,
    /// Actors play with the version from now on.
    Passes,
    /// Actors stay with the previous version.
    Fails,
}

/// The accepted version, and the rule for accepting the next version.
#[derive(Debug)]
pub(crate) struct Gate {
    rule: GateRule,
    path: PathBuf,
    accepted: Option<WeightsVersion>,
}

impl Gate {
    /// Reads the accepted version from a file; without a file, no version is accepted yet.
    ///
    /// # Errors
    /// The file cannot be read or is damaged.
    pub(crate) fn open(rule: GateRule, path: &Path) -> anyhow::Result<Self> {
        Ok(Self { rule, path: path.to_owned(), accepted: accepted::read(path)? })
    }

    /// Returns the version that the actors use; `None` before the first accepted version.
    pub(crate) fn accepted(&self) -> Option<WeightsVersion> {
        self.accepted
    }

    /// Returns the opponent of a pending version.
    pub(crate) fn opponent(&self) -> Option<Player> {
        self.accepted.map(Player::Version)
    }

    /// Accepts a version, and writes the file.
    ///
    /// # Errors
    /// The file cannot be written; the version is then accepted until the next start.
    pub(crate) fn accept(&mut self, version: WeightsVersion) -> anyhow::Result<()> {
        self.accepted = Some(version);
        Ok(accepted::write(&self.path, version)?)
    }

    /// Forgets an accepted version that cannot be used, so that the next version passes.
    pub(crate) fn forget(&mut self) {
        self.accepted = None;
    }

    /// Judges a version. The first version passes, and so does the accepted version. A version older than the accepted
    /// version fails.
    pub(crate) fn verdict(&self, ledger: &Ledger, version: WeightsVersion) -> Verdict {
        let Some(accepted) = self.accepted.filter(|&accepted| accepted != version) else { return Verdict::Passes };
        if version < accepted {
            return Verdict::Fails;
        }
        let (player, opponent) = (Player::Version(version), Player::Version(accepted));
        let results = ledger.results(player, opponent);
        match self.rule.sprt.state(results.tally) {
            State::AcceptH1 => Verdict::Passes,
            State::AcceptH0 => Verdict::Fails,
            // Repeated games are no evidence, but count towards the limit, so that a test of players that repeat games
            // ends.
            State::Continue if results.games() >= self.rule.games_max => Verdict::Fails,
            State::Continue => Verdict::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use strength::ledger::{Ledger, Player, Results, Tally};
    use strength::sprt::{Settings, Sprt};
    use tempfile::TempDir;
    use weights::WeightsVersion;

    use super::{Gate, GateRule, Verdict};

    fn sprt() -> GateRule {
        let settings = Settings { elo0: -25.0, elo1: 25.0, alpha: 0.05, beta: 0.05 };
        GateRule { sprt: Sprt::new(settings).unwrap(), games_max: 300 }
    }

    /// Returns the verdict on version 5 with these results against the accepted version 4.
    fn verdict(rule: GateRule, pairs: [u64; 5]) -> Verdict {
        verdict_on(rule, Results::from(Tally { pairs }))
    }

    /// Returns the verdict on version 5 with results that may include repeated games.
    fn verdict_on(rule: GateRule, results: Results) -> Verdict {
        let folder = TempDir::new().unwrap();
        let mut gate = Gate::open(rule, &folder.path().join("gate.json")).unwrap();
        gate.accept(WeightsVersion(4)).unwrap();
        let mut ledger = Ledger::new("connect_four");
        let [four, five] = [4, 5].map(|version| Player::Version(WeightsVersion(version)));
        ledger.add(five, four, results);
        ledger.add(four, Player::Random, Tally { pairs: [0, 0, 1, 1, 9] });
        assert_eq!(gate.verdict(&ledger, WeightsVersion(4)), Verdict::Passes);
        assert_eq!(gate.verdict(&ledger, WeightsVersion(3)), Verdict::Fails);
        gate.verdict(&ledger, WeightsVersion(5))
    }

    #[test]
    fn by_a_sequential_test_a_version_passes_once_it_is_found_stronger_than_the_accepted_one() {
        assert_eq!(verdict(sprt(), [1, 2, 8, 4, 2]), Verdict::Pending);
        assert_eq!(verdict(sprt(), [3, 8, 20, 30, 25]), Verdict::Passes);
        assert_eq!(verdict(sprt(), [25, 30, 20, 8, 3]), Verdict::Fails);
        assert_eq!(verdict(sprt(), [20, 30, 50, 30, 20]), Verdict::Fails, "undecided after all games");
    }

    #[test]
    fn repeated_games_decide_nothing_and_end_a_test_that_has_no_others() {
        let won = |repeated| Results { tally: Tally { pairs: [0, 0, 0, 0, 3] }, repeated };
        assert_eq!(verdict_on(sprt(), won(146)), Verdict::Pending);
        assert_eq!(verdict_on(sprt(), won(147)), Verdict::Fails);
    }

    #[test]
    fn the_accepted_version_survives_a_restart_and_the_first_one_passes() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("gate.json");
        let mut gate = Gate::open(sprt(), &path).unwrap();
        assert_eq!(gate.verdict(&Ledger::new("hex-5"), WeightsVersion(7)), Verdict::Passes);
        gate.accept(WeightsVersion(7)).unwrap();
        let mut again = Gate::open(sprt(), &path).unwrap();
        assert_eq!(
            (again.accepted(), again.opponent()),
            (Some(WeightsVersion(7)), Some(Player::Version(WeightsVersion(7))))
        );
        again.forget();
        assert_eq!(again.accepted(), None);
        std::fs::write(&path, "{}").unwrap();
        let error = format!("{:#}", Gate::open(sprt(), &path).unwrap_err());
        assert!(error.contains("gate.json names no accepted version"), "{error}");
    }
}
