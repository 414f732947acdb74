use weights::Architecture;

use super::{Entry, Layout};
use crate::testing::complete;

fn named<'a>(entries: &'a [Entry], part: &str) -> Vec<(&'a str, &'a [i64])> {
    let with_part = entries.iter().filter(|entry| entry.name.contains(part));
    with_part.map(|entry| (entry.name.as_str(), entry.shape.as_slice())).collect()
}

#[test]
fn a_block_has_its_convolutions_then_pooling_then_excitation() {
    let layout = Layout::new(&complete()).unwrap();
    let decayed: Vec<Entry> =
        layout.parameters.iter().filter(|entry| entry.offset < layout.decayed()).cloned().collect();
    let expected: [(&str, &[i64]); 5] = [
        ("block.2.first.convolution.weight", &[16, 16, 3, 3]),
        ("block.2.second.convolution.weight", &[16, 16, 3, 3]),
        ("block.2.pooling.weight", &[12, 8]),
        ("block.2.excitation.hidden.weight", &[8, 16]),
        ("block.2.excitation.output.weight", &[32, 8]),
    ];
    assert_eq!(named(&decayed, "block.2."), expected);
}

#[test]
fn biases_of_pooling_and_excitation_do_not_decay() {
    let layout = Layout::new(&complete()).unwrap();
    let vectors: Vec<Entry> =
        layout.parameters.iter().filter(|entry| entry.offset >= layout.decayed()).cloned().collect();
    let expected: [(&str, &[i64]); 7] = [
        ("block.2.first.norm.weight", &[16]),
        ("block.2.first.norm.bias", &[16]),
        ("block.2.second.norm.weight", &[16]),
        ("block.2.second.norm.bias", &[16]),
        ("block.2.pooling.bias", &[12]),
        ("block.2.excitation.hidden.bias", &[8]),
        ("block.2.excitation.output.bias", &[32]),
    ];
    assert_eq!(named(&vectors, "block.2."), expected);
}

#[test]
fn every_block_is_excited_and_every_third_pools() {
    let layout = Layout::new(&Architecture { blocks: 6, ..complete() }).unwrap();
    let names = |part| named(&layout.parameters, part).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names("pooling.weight"), ["block.2.pooling.weight", "block.5.pooling.weight"]);
    assert_eq!(names("excitation.hidden.weight").len(), 6);
}

#[test]
fn without_options_no_tensor_is_added() {
    let plain = Architecture { squeeze_excitation: 0, global_pooling: 0, ..complete() };
    let layout = Layout::new(&plain).unwrap();
    let added = |entry: &Entry| entry.name.contains("pooling") || entry.name.contains("excitation");
    assert!(!layout.parameters.iter().any(added));
}
