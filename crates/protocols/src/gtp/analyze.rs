//! Options and lines of the analysis commands from Leela Zero and KataGo: [`Options`], [`info_line`].

use std::time::Duration;

use crate::{Analysis, BoardGame, Candidate, Color, Move, Restriction, RestrictionKind, Size, winrate};

use super::failure::Failure;

/// Maximum number of restrictions in a command.
const RESTRICTIONS_MAX: usize = 64;

/// The form of an analysis line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// Leela Zero: shares are integers in units of 1/10000.
    LeelaZero,
    /// KataGo and Sabaki: shares are decimal numbers.
    KataGo,
}

/// The options of an analysis command.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Options {
    /// Player to search moves for.
    pub(super) color: Color,
    /// Time between lines; `None` for a single line at the end.
    pub(super) interval: Option<Duration>,
    /// Minimum number of moves per line, if there are enough moves.
    moves_min: usize,
    /// Maximum number of moves per line.
    moves_max: usize,
    /// True to report the visits of each ply in a variation.
    has_variation_visits: bool,
    /// True to report visits and value of the position.
    has_root_info: bool,
    /// Restrictions of the search.
    pub(super) restrictions: Vec<Restriction>,
}

impl Options {
    /// Parses `[color] [interval] {key value}`.
    ///
    /// # Errors
    /// [`Failure::SYNTAX`].
    pub(super) fn parse(arguments: &[&str], game: BoardGame, size: Size, to_move: Color) -> Result<Self, Failure> {
        let mut words = arguments.iter().copied().peekable();
        let mut next_if = |is_next: &dyn Fn(&str) -> bool| words.next_if(|word| is_next(word));
        let color = next_if(&|word| Color::parse(word).is_some()).and_then(Color::parse);
        let interval = next_if(&|word| word.bytes().all(|byte| byte.is_ascii_digit()));
        let mut options = Self {
            color: color.unwrap_or(to_move),
            interval: interval.map(centiseconds).transpose()?,
            moves_min: 0,
            moves_max: usize::MAX,
            has_variation_visits: false,
            has_root_info: false,
            restrictions: Vec::new(),
        };
        while let Some(key) = words.next() {
            let mut value = || words.next().ok_or(Failure::SYNTAX);
            match key {
                "interval" => options.interval = Some(centiseconds(value()?)?),
                "minmoves" => options.moves_min = number(value()?)?,
                "maxmoves" => options.moves_max = number(value()?)?,
                "pvVisits" => options.has_variation_visits = boolean(value()?)?,
                "rootInfo" => options.has_root_info = boolean(value()?)?,
                // They describe quantities that no engine here predicts; accepted for user interfaces that send them.
                "ownership" | "ownershipStdev" | "movesOwnership" | "movesOwnershipStdev" | "noResultValue" => {
                    boolean(value()?)?;
                }
                "avoid" | "allow" if options.restrictions.len() < RESTRICTIONS_MAX => {
                    let kind = if key == "allow" { RestrictionKind::Allow } else { RestrictionKind::Avoid };
                    let color = Color::parse(value()?).ok_or(Failure::SYNTAX)?;
                    let moves = value()?.split(',').map(|name| game.parse_move(size, name));
                    let moves: Option<Vec<Move>> = moves.collect();
                    // The depth is ignored: a restriction applies to the searched position only.
                    number::<u32>(value()?)?;
                    let moves = moves.ok_or(Failure::SYNTAX)?;
                    options.restrictions.push(Restriction { color, kind, moves });
                }
                _ => return Err(Failure::SYNTAX),
            }
        }
        Ok(options)
    }
}

/// Parses a number.
///
/// # Errors
/// [`Failure::SYNTAX`].
pub(super) fn number<T: std::str::FromStr>(text: &str) -> Result<T, Failure> {
    text.parse().map_err(|_| Failure::SYNTAX)
}

fn boolean(text: &str) -> Result<bool, Failure> {
    text.to_ascii_lowercase().parse().map_err(|_| Failure::SYNTAX)
}

fn centiseconds(text: &str) -> Result<Duration, Failure> {
    Ok(Duration::from_millis(10 * u64::from(number::<u32>(text)?)))
}

/// Returns an analysis line: an `info` per move, best first; empty without moves.
pub(super) fn info_line(analysis: &Analysis, style: Style, options: &Options, game: BoardGame, size: Size) -> String {
    let reported = analysis.reported(options.moves_min, options.moves_max);
    let infos = reported.map(|(order, candidate)| {
        let numbers = match style {
            Style::LeelaZero => leela_zero(candidate, order),
            Style::KataGo => katago(candidate, order),
        };
        let mut info = format!("info move {} {numbers} pv", game.move_name(size, candidate.played));
        for ply in &candidate.variation {
            info.push_str(&format!(" {}", game.move_name(size, ply.played)));
        }
        if options.has_variation_visits {
            info.push_str(" pvVisits");
            candidate.variation.iter().for_each(|ply| info.push_str(&format!(" {}", ply.visits)));
        }
        info
    });
    let mut line = infos.collect::<Vec<_>>().join(" ");
    if options.has_root_info && style == Style::KataGo {
        let &Analysis { visits, value, .. } = analysis;
        line.push_str(&format!(" rootInfo visits {visits} utility {value:.6} winrate {:.6}", winrate(value)));
    }
    line
}

fn leela_zero(candidate: &Candidate, order: usize) -> String {
    let share = |share: f64| (10_000.0 * share).round();
    let (winrate, lcb) = (share(winrate(candidate.value)), share(candidate.winrate_lower_bound()));
    let Candidate { visits, prior, .. } = candidate;
    format!("visits {visits} winrate {winrate} prior {} lcb {lcb} order {order}", share(f64::from(*prior)))
}

/// Formats a candidate. The utility is the value, −1 to 1. Scores and deviations are 0, since no engine predicts them.
fn katago(candidate: &Candidate, order: usize) -> String {
    let Candidate { visits, prior, value, .. } = candidate;
    let (winrate, lcb) = (winrate(*value), candidate.winrate_lower_bound());
    let utility_lcb = 2.0 * lcb - 1.0;
    format!(
        "visits {visits} edgeVisits {visits} utility {value:.6} winrate {winrate:.6} scoreMean 0.000000 \
         scoreStdev 0.0 scoreLead 0.000000 scoreSelfplay 0.000000 prior {prior:.6} lcb {lcb:.6} \
         utilityLcb {utility_lcb:.6} weight {visits} order {order}"
    )
}
