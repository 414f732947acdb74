use super::Architecture;

const PLAIN: &str = r#"{
    "game": "any", "planes": 2, "height": 3, "width": 3, "actions": 9, "channels": 8, "blocks": 1
}"#;

fn architecture(blocks: usize, global_pooling: usize) -> Architecture {
    let plain: Architecture = serde_json::from_str(PLAIN).unwrap();
    Architecture { blocks, global_pooling, ..plain }
}

#[test]
fn an_architecture_without_the_options_reads_as_one_that_has_none() {
    let plain: Architecture = serde_json::from_str(PLAIN).unwrap();
    assert_eq!((plain.squeeze_excitation, plain.global_pooling), (0, 0));
}

#[test]
fn an_architecture_reads_back_as_it_was_written() {
    let written = Architecture { squeeze_excitation: 16, ..architecture(6, 4) };
    let read: Architecture = serde_json::from_str(&serde_json::to_string(&written).unwrap()).unwrap();
    assert_eq!(read, written);
}

#[test]
fn every_third_block_pools_and_none_without_channels_to_pool() {
    let pooling = |global_pooling| -> Vec<usize> {
        let architecture = architecture(8, global_pooling);
        (0..8).filter(|&block| architecture.pools(block)).collect()
    };
    assert_eq!(pooling(4), [2, 5]);
    assert!(pooling(0).is_empty());
}
