//! Runs the checks of the fuzz targets without libFuzzer: on the corpora, on inputs that the program itself writes, and
//! on mutations of both.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]
#![allow(clippy::print_stderr, reason = "the input of a failed check is printed")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::{Path, PathBuf};

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

#[path = "../../fuzz/checks/analysis.rs"]
mod analysis;
#[path = "../../fuzz/checks/checkpoint.rs"]
mod checkpoint;
#[path = "../../fuzz/checks/crash.rs"]
mod crash;
#[path = "../../fuzz/checks/evaluations.rs"]
mod evaluations;
#[path = "../../fuzz/checks/games.rs"]
mod games_check;
#[path = "../../fuzz/checks/gtp.rs"]
mod gtp;
#[path = "../../fuzz/checks/infer.rs"]
mod infer;
#[path = "../../fuzz/checks/inserts.rs"]
mod inserts;
#[path = "../../fuzz/checks/operator.rs"]
mod operator;
#[path = "../../fuzz/checks/record.rs"]
mod record;
#[path = "../../fuzz/checks/run_file.rs"]
mod run_file;
#[path = "../../fuzz/checks/segments.rs"]
mod segments;
#[path = "../../fuzz/checks/sgf.rs"]
mod sgf;
#[path = "../../fuzz/checks/spool.rs"]
mod spool;
#[path = "../../fuzz/checks/tokens.rs"]
mod tokens;
#[path = "../../fuzz/checks/trace.rs"]
mod trace;
#[path = "../../fuzz/checks/weights.rs"]
mod weights_check;

/// Maximum memory that a check may hold at a time for an input of some kilobytes: several times the largest message.
const MEMORY_BYTES_MAX: usize = 100 << 20;
/// Maximum number of files in a corpus, and of seeds among them.
const FILES_MAX: usize = 20;
const SEED_FILES_MAX: usize = 10;

/// Counts the memory of each thread.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    /// Memory that this thread has allocated and not freed, and the maximum of it.
    static HELD: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

// SAFETY: every call is passed on unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is exiting no longer has a counter.
        let _ = HELD.try_with(|held| {
            let now = held.get().0.wrapping_add(layout.size());
            held.set((now, held.get().1.max(now)));
        });
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // Memory may come from another thread.
        let _ = HELD.try_with(|held| held.set((held.get().0.saturating_sub(layout.size()), held.get().1)));
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target)
}

/// Runs every file of a corpus, every seed, and `cases` mutations of these inputs, which a fixed seed determines.
fn run(target: &str, seeds: Vec<Vec<u8>>, cases: usize, check: fn(&[u8])) {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(corpus(target)).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!((1..=FILES_MAX).contains(&files.len()), "the corpus of {target} has {} files", files.len());
    let mut inputs: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
    inputs.extend(seeds);
    inputs.iter().for_each(|input| within_memory(input, check));
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for _ in 0..cases * factor() {
        within_memory(&changed(&inputs, &mut rng), check);
    }
}

/// Returns the factor for the number of mutations: `ZEROFLEET_CORPUS_FACTOR`, or 1.
fn factor() -> usize {
    std::env::var("ZEROFLEET_CORPUS_FACTOR").ok().and_then(|factor| factor.parse().ok()).unwrap_or(1)
}

/// Runs a check and compares the memory with the limit; a failure prints the input.
fn within_memory(input: &[u8], check: fn(&[u8])) {
    let before = HELD.get().0;
    HELD.set((before, before));
    if let Err(panic) = std::panic::catch_unwind(|| check(input)) {
        eprintln!("the input is {}", input.escape_ascii());
        std::panic::resume_unwind(panic);
    }
    let most = HELD.get().1 - before;
    assert!(most <= MEMORY_BYTES_MAX, "{most} bytes for {}", input.escape_ascii());
}

/// Changes one of the inputs in a few places: bits, bytes, numbers, and parts of this or another input.
fn changed(inputs: &[Vec<u8>], rng: &mut ChaCha8Rng) -> Vec<u8> {
    let mut input = inputs[rng.random_range(0..inputs.len())].clone();
    let other = &inputs[rng.random_range(0..inputs.len())];
    for _ in 0..rng.random_range(1..=4) {
        let at = rng.random_range(0..=input.len());
        let end = rng.random_range(at..=input.len().min(at + 40));
        let from = rng.random_range(0..=other.len());
        let to = rng.random_range(from..=other.len().min(from + 60));
        match rng.random_range(0..8) {
            0 if at < input.len() => input[at] ^= 1 << rng.random_range(0..8),
            1 if at < input.len() => input[at] = rng.random(),
            2 => drop(input.drain(at..end)),
            3 => input.truncate(at),
            4 => drop(input.splice(at..at, other[from..to].iter().copied())),
            5 => drop(input.splice(at..end, other[from..to].iter().copied())),
            6 => {
                let extremes: [&[u8]; 4] = [&[0xff; 8], &[0; 8], &[0xff, 0xff, 0xff, 0x7f], &[0x80, 0x01]];
                let extreme = extremes[rng.random_range(0..extremes.len())];
                let end = input.len().min(at + extreme.len());
                drop(input.splice(at..end, extreme.iter().copied()));
            }
            _ => input.insert(at, rng.random()),
        }
    }
    input
}

fn trajectories() -> Vec<experience::Trajectory> {
    (0..4).map(record::trajectory).collect()
}

/// Returns the seeds of every target.
fn all_seeds() -> Vec<(&'static str, Vec<Vec<u8>>)> {
    vec![
        ("analysis", analysis::seeds()),
        ("checkpoint", checkpoint::seeds()),
        ("crash", crash::seeds()),
        ("evaluations", evaluations::seeds()),
        ("games", games_check::seeds()),
        ("gtp", gtp::seeds()),
        ("infer", infer::seeds()),
        ("inserts", inserts::seeds(&trajectories())),
        ("operator", operator::seeds(&record::trajectory(0))),
        ("record", record::seeds()),
        ("run_file", run_file::seeds()),
        ("segments", segments::seeds(&record::seeds())),
        ("sgf", sgf::seeds()),
        ("spool", spool::seeds(&trajectories())),
        ("tokens", tokens::seeds()),
        ("trace", trace::seeds()),
        ("weights", weights_check::seeds()),
    ]
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    all_seeds().into_iter().find(|(name, _)| *name == target).unwrap().1
}

#[test]
fn any_payload_is_a_record_or_is_refused() {
    run("record", seeds("record"), 4000, record::check);
}

#[test]
fn any_bytes_are_a_log_that_keeps_its_whole_records_or_are_refused() {
    run("segments", seeds("segments"), 1000, segments::check);
}

#[test]
fn a_log_interrupted_at_any_operation_keeps_what_it_acknowledged() {
    run("crash", seeds("crash"), 600, crash::check);
}

#[test]
fn any_bytes_are_a_stream_of_valid_inserts_or_end_it() {
    run("inserts", seeds("inserts"), 2000, inserts::check);
}

#[test]
fn any_bytes_are_a_stream_of_valid_evaluation_requests_or_end_it() {
    run("evaluations", seeds("evaluations"), 2000, evaluations::check);
}

#[test]
fn any_moves_of_a_board_game_are_legal_by_slow_rules_too() {
    run("games", seeds("games"), 150, games_check::check);
}

#[test]
fn any_bytes_are_an_inference_request_with_one_answer_or_are_refused() {
    run("infer", seeds("infer"), 1000, infer::check);
}

#[test]
fn any_bytes_are_an_operator_request_or_are_refused() {
    run("operator", seeds("operator"), 2000, operator::check);
}

#[test]
fn any_weights_are_a_network_to_both_evaluators_or_to_neither() {
    run("weights", seeds("weights"), 300, weights_check::check);
}

#[test]
fn the_newest_whole_checkpoint_is_found_whatever_is_damaged() {
    run("checkpoint", seeds("checkpoint"), 150, checkpoint::check);
}

#[test]
fn any_bytes_are_a_spool_with_faults_and_a_changed_byte_costs_one_trajectory() {
    run("spool", seeds("spool"), 2000, spool::check);
}

#[test]
fn any_bytes_are_a_file_of_tokens_or_are_refused_without_a_quote() {
    run("tokens", seeds("tokens"), 1000, tokens::check);
}

#[test]
fn any_text_is_a_trace_context_or_is_ignored() {
    run("trace", seeds("trace"), 10_000, trace::check);
}

#[test]
fn any_bytes_are_commands_of_which_each_has_one_response() {
    run("gtp", seeds("gtp"), 1500, gtp::check);
}

#[test]
fn any_bytes_are_a_game_record_that_is_read_as_it_is_written_or_are_refused() {
    run("sgf", seeds("sgf"), 4000, sgf::check);
}

#[test]
fn any_bytes_are_analysis_queries_with_a_response_for_each_position_or_an_error() {
    run("analysis", seeds("analysis"), 1500, analysis::check);
}

#[test]
fn any_text_is_a_run_file_or_is_refused() {
    run("run_file", seeds("run_file"), 150, run_file::check);
}

/// Writes the first seeds of each target into the corpus.
#[test]
#[ignore = "writes into the source tree"]
fn seeds_are_written() {
    for (target, seeds) in all_seeds() {
        std::fs::create_dir_all(corpus(target)).unwrap();
        for (number, seed) in seeds.iter().take(SEED_FILES_MAX).enumerate() {
            std::fs::write(corpus(target).join(format!("seed-{number:02}")), seed).unwrap();
        }
    }
}
