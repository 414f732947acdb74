//! `zerofleet inference`: requests statistics and moves from a live inference server.

use std::io::Write;

use anyhow::Context;
use figures::table::Table;
use proto::inference::v1::{Analysis, BatchesOfSize, MoveAnalysis, StatsResponse};
use proto::inference::{AnalysisClient, Moves, SearchQuery};

use crate::client_security::LiveServer;

/// Queries a live inference server for statistics and moves.
#[derive(Debug, Clone, clap::Subcommand)]
pub(crate) enum Request {
    /// Shows served versions, request counts, and reasons for batch sizes.
    Stats {
        #[command(flatten)]
        server: LiveServer,
    },
    /// Prints the best move in the position after the given moves.
    ///
    /// Moves are in the notation of the game.
    Move {
        #[command(flatten)]
        server: LiveServer,
        /// Moves from the start of the game.
        #[arg(value_name = "MOVE")]
        moves: Vec<String>,
        /// Number of simulations [default: the server's default].
        #[arg(long, value_name = "N")]
        simulations: Option<u32>,
    },
}

impl Request {
    /// Sends the request and prints the response.
    ///
    /// # Errors
    /// The server does not respond or rejects the request.
    pub(crate) fn run(self, out: &mut impl Write) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            match self {
                Request::Stats { server } => {
                    let stats = AnalysisClient::new(server.reach()?)?.stats().await.context("request statistics")?;
                    write_stats(&stats, out)
                }
                Request::Move { server, moves, simulations } => {
                    let query = SearchQuery { game: None, moves: Moves::Notation(moves), simulations, time: None };
                    let (best, report) = AnalysisClient::new(server.reach()?)?.select_move(query).await?;
                    write_move(&best, &report, out)
                }
            }
        })
    }
}

fn write_stats(stats: &StatsResponse, out: &mut impl Write) -> anyhow::Result<()> {
    let StatsResponse { game, versions, evaluator, explanation, batches, .. } = stats;
    if versions.is_empty() {
        writeln!(out, "no weights received yet")?;
    } else {
        let versions: Vec<String> = versions.iter().map(u64::to_string).collect();
        writeln!(out, "{game}, weights versions {}, by {evaluator}", versions.join(", "))?;
    }
    let StatsResponse { requests, positions, cached_positions, rejected_requests, failed_requests, .. } = stats;
    writeln!(out, "{requests} requests answered: {positions} positions evaluated, {cached_positions} from the cache")?;
    writeln!(out, "{rejected_requests} requests rejected, {failed_requests} failed")?;
    let StatsResponse { streams, waiting_positions, .. } = stats;
    writeln!(out, "{streams} clients of the fast path, {waiting_positions} positions waiting")?;
    writeln!(out, "{explanation}")?;
    if batches.is_empty() {
        return Ok(());
    }
    let mut table = Table::default().numbers(["batch", "full", "delay", "idle", "µs each"]);
    for BatchesOfSize { size, full, delay, idle, compute_us } in batches {
        let each = compute_us / (full + delay + idle).max(1);
        table.row([format!("≤ {size}"), full.to_string(), delay.to_string(), idle.to_string(), each.to_string()]);
    }
    Ok(write!(out, "\n{table}")?)
}

fn write_move(best: &MoveAnalysis, report: &Analysis, out: &mut impl Write) -> anyhow::Result<()> {
    let Analysis { version, simulations, value, moves, principal_variation, .. } = report;
    writeln!(out, "{}", best.r#move)?;
    let line = principal_variation.join(" ");
    writeln!(out, "value {value:+.2} after {simulations} simulations, weights version {version}; best play {line}\n")?;
    let mut table = Table::default().words(["move"]).numbers(["visits", "prior", "value"]);
    for MoveAnalysis { r#move: notation, visit_count, prior, value, .. } in moves {
        table.row([notation.clone(), visit_count.to_string(), format!("{prior:.3}"), format!("{value:+.2}")]);
    }
    Ok(write!(out, "{table}")?)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use proto::inference::v1::{Analysis, BatchesOfSize, MoveAnalysis, StatsResponse};

    use super::{Request, write_move, write_stats};

    #[derive(Debug, Parser)]
    struct Line {
        #[command(subcommand)]
        request: Request,
    }

    fn text(write: impl FnOnce(&mut Vec<u8>) -> anyhow::Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn stats_show_the_served_versions_and_explain_small_batches() {
        let stats = StatsResponse {
            game: "hex-11".into(),
            versions: vec![7, 8],
            evaluator: "tower".into(),
            requests: 3,
            batches: vec![BatchesOfSize { size: 4, full: 0, delay: 0, idle: 2, compute_us: 30 }],
            explanation: "because".into(),
            ..StatsResponse::default()
        };
        let printed = text(|out| write_stats(&stats, out));
        for words in ["hex-11, weights versions 7, 8, by tower", "3 requests answered", "because", "≤ 4", " 15\n"] {
            assert!(printed.contains(words), "`{words}` is missing in: {printed}");
        }
        assert!(text(|out| write_stats(&StatsResponse::default(), out)).contains("no weights received yet"));
    }

    #[test]
    fn the_move_to_play_comes_first() {
        let best = MoveAnalysis { r#move: "d4".into(), action: 3, visit_count: 90, prior: 0.25, value: 0.5 };
        let report = Analysis {
            version: 2,
            simulations: 100,
            value: 0.5,
            moves: vec![best.clone()],
            principal_variation: vec!["d4".into(), "e5".into()],
            finished: true,
        };
        let printed = text(|out| write_move(&best, &report, out));
        assert!(
            printed.starts_with("d4\nvalue +0.50 after 100 simulations, weights version 2; best play d4 e5\n"),
            "{printed}"
        );
    }

    #[test]
    fn a_server_without_a_trusted_certificate_is_rejected_before_a_request() {
        let line = ["inference", "stats", "--server", "https://127.0.0.1:1"];
        let error = Line::try_parse_from(line).unwrap().request.run(&mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains("security.ca"), "{error}");
    }
}
