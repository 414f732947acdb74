//! The designs of an ablation: which runs are compared in pairs.

use serde::Deserialize;

/// Number of columns in the Plackett-Burman table, which is the maximum number of switches in a screen.
pub(super) const COLUMNS: usize = 11;
/// Number of rows in the Plackett-Burman table, each of which is a run.
const ROWS: usize = COLUMNS + 1;
/// First row of the Plackett-Burman table with 12 runs (Plackett and Burman 1946, "The Design of Optimum Multifactorial
/// Experiments").
const GENERATOR: [bool; COLUMNS] = [true, true, false, true, true, true, false, false, false, true, false];

/// The setting `design.kind` of a study file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// Each row of the Plackett-Burman table, paired with a mirror run in which every switch is inverted.
    Screen,
    /// A run without a switch and a run with the switch, one after the other.
    Pairs,
}

impl Kind {
    /// Returns the name of the design in tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Screen => "screen",
            Self::Pairs => "pairs",
        }
    }

    /// Returns the number of parallel runs. In a screen, both runs of a pair run at the same time, so that machine and
    /// load are the same.
    pub(super) fn parallel(self) -> usize {
        match self {
            Self::Screen => 2,
            Self::Pairs => 1,
        }
    }
}

/// The setting `design.arms` of a study file, which applies to the design `pairs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Arms {
    /// One pair for each switch.
    Each,
    /// One pair of runs per seed, in which all switches change together.
    All,
}

/// Two runs that are compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pair {
    /// Number of the pair in the study, from 1.
    pub number: usize,
    pub seed: u64,
    /// The two runs in the order of starting.
    pub runs: [Run; 2],
}

/// One run of a pair, with the state of every switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Run {
    /// Name of the side: `+` or `-` in a screen, `off` or `on` in the design `pairs`.
    pub side: &'static str,
    /// State of each switch: true if the switch is on.
    pub levels: Vec<bool>,
}

/// Returns all pairs of a design for `switches` switches, ordered by seed.
pub(super) fn pairs(kind: Kind, arms: Arms, switches: usize, seeds: &[u64]) -> Vec<Pair> {
    let run = |side, levels| Run { side, levels };
    let of_seed = |(index, &seed): (usize, &u64)| -> Vec<(u64, [Run; 2])> {
        let runs: Vec<[Run; 2]> = match (kind, arms) {
            (Kind::Screen, _) => {
                let mirror = |row: &[bool]| row.iter().map(|is_on| !is_on).collect();
                let beside = |row: [bool; COLUMNS]| {
                    let row = &row[..switches];
                    [run("+", row.to_vec()), run("-", mirror(row))]
                };
                table().map(beside).into()
            }
            (Kind::Pairs, Arms::Each) => {
                let only = |switch| (0..switches).map(|other| other == switch).collect();
                (0..switches).map(|switch| [run("off", vec![false; switches]), run("on", only(switch))]).collect()
            }
            (Kind::Pairs, Arms::All) => vec![[run("off", vec![false; switches]), run("on", vec![true; switches])]],
        };
        // Alternating the order balances drift of the machine between runs, for example in temperature.
        let is_reversed = kind == Kind::Pairs && index % 2 == 1;
        let ordered = |[first, second]: [Run; 2]| if is_reversed { [second, first] } else { [first, second] };
        runs.into_iter().map(|runs| (seed, ordered(runs))).collect()
    };
    let all = seeds.iter().enumerate().flat_map(of_seed).enumerate();
    all.map(|(index, (seed, runs))| Pair { number: index + 1, seed, runs }).collect()
}

/// Returns the Plackett-Burman table: the cyclic shifts of the first row, and a last row with all switches off.
fn table() -> [[bool; COLUMNS]; ROWS] {
    std::array::from_fn(|row| {
        std::array::from_fn(|column| row < COLUMNS && GENERATOR[(column + COLUMNS - row) % COLUMNS])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sign(is_on: bool) -> i32 {
        if is_on { 1 } else { -1 }
    }

    #[test]
    fn every_column_of_the_table_is_balanced_and_orthogonal_to_every_other() {
        let product = |a: usize, b: usize| table().iter().map(|row| sign(row[a]) * sign(row[b])).sum::<i32>();
        for a in 0..COLUMNS {
            assert_eq!(table().iter().map(|row| sign(row[a])).sum::<i32>(), 0, "column {a}");
            for b in 0..COLUMNS {
                assert_eq!(product(a, b), if a == b { ROWS as i32 } else { 0 }, "columns {a} and {b}");
            }
        }
    }

    /// In the table alone, each main effect is aliased with interactions of other columns. The mirror runs remove all
    /// aliases.
    #[test]
    fn a_main_effect_is_not_aliased_with_any_interaction_of_two_switches_once_the_mirror_is_added() {
        let runs: Vec<Run> = pairs(Kind::Screen, Arms::Each, COLUMNS, &[1]).into_iter().flat_map(|p| p.runs).collect();
        assert_eq!(runs.len(), 2 * ROWS);
        let mut aliased = 0;
        for a in 0..COLUMNS {
            for (b, c) in (0..COLUMNS).flat_map(|b| (0..b).map(move |c| (b, c))) {
                let product = |levels: &[bool]| sign(levels[a]) * sign(levels[b]) * sign(levels[c]);
                assert_eq!(runs.iter().map(|run| product(&run.levels)).sum::<i32>(), 0, "{a} with {b} and {c}");
                aliased += usize::from(table().iter().map(|row| product(row)).sum::<i32>() != 0);
            }
        }
        assert!(aliased > 100, "{aliased}: without the mirror there is something to cancel");
    }

    #[test]
    fn a_row_and_its_mirror_differ_in_every_switch_and_have_one_seed() {
        for pair in pairs(Kind::Screen, Arms::Each, 3, &[7, 9]) {
            let [row, mirror] = &pair.runs;
            assert!(row.levels.len() == 3 && row.levels.iter().zip(&mirror.levels).all(|(a, b)| a != b), "{pair:?}");
            assert_eq!(pair.seed, if pair.number <= ROWS { 7 } else { 9 });
        }
    }

    #[test]
    fn pairs_have_one_switch_or_all_on_and_the_first_arm_alternates_from_seed_to_seed() {
        let sides = |arms| -> Vec<(usize, u64, &str, Vec<bool>)> {
            let pairs = pairs(Kind::Pairs, arms, 2, &[4, 5]);
            pairs
                .into_iter()
                .map(|Pair { number, seed, runs: [first, _] }| (number, seed, first.side, first.levels))
                .collect()
        };
        let off = vec![false, false];
        let expected = vec![
            (1, 4, "off", off.clone()),
            (2, 4, "off", off.clone()),
            (3, 5, "on", vec![true, false]),
            (4, 5, "on", vec![false, true]),
        ];
        assert_eq!(sides(Arms::Each), expected);
        assert_eq!(sides(Arms::All), [(1, 4, "off", off), (2, 5, "on", vec![true, true])]);
    }
}
