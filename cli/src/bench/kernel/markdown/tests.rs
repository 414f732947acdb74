use super::super::testing;
use super::*;

fn lines() -> Vec<String> {
    markdown(&testing::report()).lines().map(str::to_owned).collect()
}

#[track_caller]
fn assert_line(line: &str) {
    let lines = lines();
    assert!(lines.iter().any(|written| written == line), "{line}\nis not in\n{}", lines.join("\n"));
}

#[test]
fn speeds_stand_beside_each_other_by_batch_size() {
    assert_line("## 6x64@6x7: 18.9 million multiply-adds a position");
    assert_line("| evaluations/s (share of the peak) | batch 1 | batch 8 | batch 32 | peak, 10⁹ multiply-adds/s |");
    assert_line("| **avx512-bf16** | 6000 | 12000 | 24000 (61 %) | 400 |");
    assert_line("| libtorch f32 | 2000 | 3000 | – | – |");
}

#[test]
fn the_choice_and_what_it_is_worth_are_told_in_words() {
    assert_line("The kernel chooses avx512-bf16 (the widest).");
    assert_line(
        "- avx512-bf16 over libtorch: 2.00 times at the best batch of each, 3.00 times at batch 1, 3.00 times at batch 8",
    );
    assert_line("- avx512-bf16 over openvino: 3.00 times at the best batch of each, 1.50 times at batch 1");
    assert_line(
        "- avx2-f32 over libtorch in f32: 1.67 times at the best batch of each, 1.50 times at batch 1, 1.33 times at batch 8",
    );
}

#[test]
fn layers_are_told_in_nanoseconds_and_blocks_by_their_mean() {
    assert_line("| avx512-bf16 | 32 | 50 | 400 | 4000 | 300 | 200 |");
}

#[test]
fn what_was_not_measured_says_why() {
    assert_line("onnxruntime f32: not measured: it ended");
    assert!(lines().iter().all(|line| !line.starts_with("| onnxruntime")));
}
