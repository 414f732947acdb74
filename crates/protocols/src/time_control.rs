//! The time of a player: limits of a game ([`TimeControl`]), the time left, and the share for the next move
//! ([`Clock`]).

use std::time::Duration;

/// Minimum number of moves to divide the remaining main time by, so that a long game does not exhaust it.
const MOVES_LEFT_MIN: u32 = 10;
/// Number of moves with reserved lag in an absolute time, for games that last longer than expected.
const LAGS_RESERVED: u32 = 100;

/// The time limits of each player.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeControl {
    /// No limit.
    Unlimited,
    /// A time for the whole game.
    Absolute {
        /// Time for all moves.
        main: Duration,
    },
    /// A main time, then periods with a number of moves each.
    Canadian {
        /// Main time.
        main: Duration,
        /// Length of a period.
        period: Duration,
        /// Moves per period, at least 1.
        moves: u32,
    },
    /// A main time, then a number of periods. A move shorter than a period uses up none.
    ByoYomi {
        /// Main time.
        main: Duration,
        /// Length of a period.
        period: Duration,
        /// Number of periods, at least 1.
        periods: u32,
    },
}

impl TimeControl {
    /// Returns the control described by GTP's `time_settings`: a main time, and `moves` moves per period.
    ///
    /// A period without moves means no limit at all; moves without a period mean an absolute time.
    #[must_use]
    pub const fn from_time_settings(main: Duration, period: Duration, moves: u32) -> Self {
        match (period.is_zero(), moves) {
            (false, 0) => Self::Unlimited,
            (true, _) => Self::Absolute { main },
            (false, moves) => Self::Canadian { main, period, moves },
        }
    }

    const fn main(self) -> Duration {
        match self {
            Self::Unlimited => Duration::MAX,
            Self::Absolute { main } | Self::Canadian { main, .. } | Self::ByoYomi { main, .. } => main,
        }
    }
}

/// The time left for a player.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    control: TimeControl,
    phase: Phase,
}

/// The current part of a player's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The main time, and the time left in it.
    Main(Duration),
    /// A period after the main time: the time left, and the moves (Canadian) or periods (byo-yomi) left, including
    /// this one.
    Overtime { left: Duration, count: u32 },
}

impl Clock {
    /// Returns the clock at the start of a game.
    #[must_use]
    pub const fn new(control: TimeControl) -> Self {
        Self { control, phase: Phase::Main(control.main()) }
    }

    /// Sets the time left, as reported by GTP's `time_left`: a `count` of 0 is main time; otherwise `count` is the
    /// number of moves left in the period, in byo-yomi the number of periods left. Ignored without a limit.
    pub fn set_left(&mut self, left: Duration, count: u32) {
        if self.control != TimeControl::Unlimited {
            self.phase = if count == 0 { Phase::Main(left) } else { Phase::Overtime { left, count } };
        }
    }

    /// Subtracts the time of a move.
    pub fn spend(&mut self, elapsed: Duration) {
        self.phase = match (self.control, self.phase) {
            (TimeControl::Unlimited, phase) => phase,
            (TimeControl::Absolute { .. }, Phase::Main(left) | Phase::Overtime { left, .. }) => {
                Phase::Main(left.saturating_sub(elapsed))
            }
            (_, Phase::Main(left)) if elapsed <= left => Phase::Main(left - elapsed),
            (TimeControl::Canadian { period, moves, .. }, Phase::Main(left)) => {
                canadian(period, moves, period.saturating_sub(elapsed - left), moves)
            }
            (TimeControl::Canadian { period, moves, .. }, Phase::Overtime { left, count }) => {
                canadian(period, moves, left.saturating_sub(elapsed), count)
            }
            (TimeControl::ByoYomi { period, periods, .. }, Phase::Main(left)) => {
                byo_yomi(period, period, periods, elapsed - left)
            }
            (TimeControl::ByoYomi { period, .. }, Phase::Overtime { left, count }) => {
                byo_yomi(period, left, count, elapsed)
            }
        };
    }

    /// Returns the time for the next move; `None` without a limit.
    ///
    /// `moves_left` is the expected number of own moves left in the game. Main time is divided evenly among them, or
    /// among at least ten, so that some is left however long the game lasts. If a period follows, a move may take at
    /// least one period share. Each share is reduced by `lag`, the time that a move takes in addition to the search.
    /// In an absolute time, the lag of 100 moves is reserved, but at most half of the time. If every move takes at
    /// most `lag` longer than this share, a player exceeds a period or an absolute time only if the lags alone do.
    #[must_use]
    pub fn budget(&self, moves_left: u32, lag: Duration) -> Option<Duration> {
        let even = |left: Duration| left / moves_left.max(MOVES_LEFT_MIN);
        let share = match (self.control, self.phase) {
            (TimeControl::Unlimited, _) => return None,
            (TimeControl::Absolute { main }, Phase::Main(left) | Phase::Overtime { left, .. }) => {
                even(left.saturating_sub(lag.saturating_mul(LAGS_RESERVED).min(main / 2)))
            }
            (TimeControl::Canadian { period, moves, .. }, Phase::Main(left)) => even(left).max(period / moves.max(1)),
            (TimeControl::Canadian { .. }, Phase::Overtime { left, count }) => left / count.max(1),
            (TimeControl::ByoYomi { period, .. }, Phase::Main(left)) => even(left).max(period),
            (TimeControl::ByoYomi { .. }, Phase::Overtime { left, .. }) => left,
        };
        Some(share.saturating_sub(lag))
    }
}

/// Returns the phase after a move in a period of `moves`, with `left` and `count` before the move is counted.
const fn canadian(period: Duration, moves: u32, left: Duration, count: u32) -> Phase {
    if count <= 1 { Phase::Overtime { left: period, count: moves } } else { Phase::Overtime { left, count: count - 1 } }
}

/// Returns the phase after a move that took `elapsed`, with `left` in the first of `count` periods.
fn byo_yomi(period: Duration, left: Duration, count: u32, elapsed: Duration) -> Phase {
    if elapsed <= left || period.is_zero() {
        return Phase::Overtime { left: period, count };
    }
    let further = (elapsed - left).as_nanos().div_ceil(period.as_nanos());
    let used = u32::try_from(further).unwrap_or(u32::MAX);
    Phase::Overtime { left: period, count: count.saturating_sub(used).max(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAG: Duration = Duration::from_millis(100);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// A referee clock, independent of [`Clock`]: in milliseconds, move by move.
    struct Referee {
        control: TimeControl,
        main: i64,
        period_left: i64,
        moves: u32,
        periods: u32,
    }

    impl Referee {
        fn new(control: TimeControl) -> Self {
            let ms = |time: Duration| time.as_millis() as i64;
            let (main, period_left, moves, periods) = match control {
                TimeControl::Unlimited => (i64::MAX, 0, 0, 0),
                TimeControl::Absolute { main } => (ms(main), 0, 0, 0),
                TimeControl::Canadian { main, period, moves } => (ms(main), ms(period), moves, 0),
                TimeControl::ByoYomi { main, period, periods } => (ms(main), ms(period), 0, periods),
            };
            Self { control, main, period_left, moves, periods }
        }

        /// Returns false once the time is exceeded.
        fn is_in_time(&mut self, move_ms: i64) -> bool {
            let over = move_ms - self.main.max(0);
            self.main = (self.main - move_ms).max(0);
            if over <= 0 {
                return true;
            }
            match self.control {
                TimeControl::Unlimited | TimeControl::Absolute { .. } => false,
                TimeControl::Canadian { period, moves, .. } => {
                    self.period_left -= over;
                    self.moves -= 1;
                    let is_in_time = self.period_left >= 0;
                    if self.moves == 0 {
                        (self.moves, self.period_left) = (moves, period.as_millis() as i64);
                    }
                    is_in_time
                }
                TimeControl::ByoYomi { period, .. } => {
                    let period = period.as_millis() as i64;
                    self.periods = self.periods.saturating_sub(((over - 1) / period) as u32);
                    self.periods > 0
                }
            }
        }
    }

    #[test]
    fn a_player_that_keeps_its_budget_never_loses_on_time() {
        let controls = [
            TimeControl::Absolute { main: seconds(600) },
            TimeControl::Canadian { main: seconds(60), period: seconds(30), moves: 5 },
            TimeControl::Canadian { main: seconds(0), period: seconds(10), moves: 25 },
            TimeControl::ByoYomi { main: seconds(300), period: seconds(5), periods: 3 },
            TimeControl::ByoYomi { main: seconds(0), period: seconds(1), periods: 1 },
        ];
        for control in controls {
            // Games of the expected length, three times as long, and a tenth as long.
            for (moves, expected) in [(150, 150_u32), (450, 150), (15, 150), (300, 1)] {
                let (mut clock, mut referee) = (Clock::new(control), Referee::new(control));
                for number in 0..moves {
                    let budget = clock.budget(expected.saturating_sub(number as u32), LAG).unwrap();
                    // The full lag and no lag, alternating.
                    let took = budget + if number % 3 == 0 { LAG } else { Duration::ZERO };
                    assert!(referee.is_in_time(took.as_millis() as i64), "{control:?}: move {number} of {moves}");
                    clock.spend(took);
                }
            }
        }
    }

    #[test]
    fn an_expected_game_uses_most_of_an_absolute_time() {
        let mut clock = Clock::new(TimeControl::Absolute { main: seconds(1000) });
        let mut used = Duration::ZERO;
        for number in 0..100 {
            let budget = clock.budget(100 - number, LAG).unwrap();
            used += budget;
            clock.spend(budget + LAG);
        }
        assert!(used > seconds(600) && used < seconds(1000), "{used:?}");
    }

    #[test]
    fn shares_follow_the_control_and_the_reported_time() {
        let canadian = TimeControl::from_time_settings(seconds(100), seconds(50), 10);
        let mut clock = Clock::new(canadian);
        assert_eq!(clock.budget(50, LAG), Some(seconds(5) - LAG), "a share of a period is more than one of main time");
        clock.set_left(seconds(12), 3);
        assert_eq!(clock.budget(50, LAG), Some(seconds(4) - LAG));
        let mut byo_yomi = Clock::new(TimeControl::ByoYomi { main: seconds(0), period: seconds(30), periods: 5 });
        byo_yomi.set_left(seconds(30), 5);
        assert_eq!(byo_yomi.budget(50, LAG), Some(seconds(30) - LAG));
        let mut absolute = Clock::new(TimeControl::from_time_settings(seconds(100), Duration::ZERO, 0));
        assert_eq!(absolute.budget(20, LAG), Some(seconds(90) / 20 - LAG));
        absolute.set_left(Duration::ZERO, 0);
        assert_eq!(absolute.budget(20, LAG), Some(Duration::ZERO));
        let mut unlimited = Clock::new(TimeControl::from_time_settings(Duration::ZERO, seconds(1), 0));
        unlimited.set_left(seconds(1), 1);
        assert_eq!(unlimited.budget(20, LAG), None);
    }
}
