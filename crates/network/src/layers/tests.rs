use super::*;

fn complete() -> Architecture {
    Architecture { squeeze_excitation: 8, global_pooling: 4, ..Architecture::plain("complete", [2, 3, 4], 5, [16, 3]) }
}

fn weights(layers: &Layers, part: &str) -> Vec<(String, Vec<usize>)> {
    let found = layers.tensors().filter(|tensor| tensor.role.is_weight() && tensor.name.contains(part));
    found.map(|tensor| (tensor.name, tensor.shape)).collect()
}

#[test]
fn a_block_has_its_convolutions_then_pooling_then_excitation() {
    let expected: [(&str, &[usize]); 5] = [
        ("block.2.first.convolution.weight", &[16, 16, 3, 3]),
        ("block.2.second.convolution.weight", &[16, 16, 3, 3]),
        ("block.2.pooling.weight", &[12, 8]),
        ("block.2.excitation.hidden.weight", &[8, 16]),
        ("block.2.excitation.output.weight", &[32, 8]),
    ];
    let expected: Vec<_> = expected.map(|(name, shape)| (name.to_owned(), shape.to_vec())).into();
    assert_eq!(weights(&Layers::new(&complete()).unwrap(), "block.2."), expected);
}

#[test]
fn every_block_is_excited_and_every_third_pools() {
    let layers = Layers::new(&Architecture { blocks: 8, ..complete() }).unwrap();
    let pooling: Vec<_> = layers.blocks.iter().map(|block| block.pooling.is_some()).collect();
    assert_eq!(pooling, [false, false, true, false, false, true, false, false]);
    assert!(layers.blocks.iter().all(|block| block.excitation.is_some()));
}

#[test]
fn without_options_no_tensor_is_added() {
    let plain = Architecture { squeeze_excitation: 0, global_pooling: 0, ..complete() };
    let layers = Layers::new(&plain).unwrap();
    assert_eq!((weights(&layers, "pooling").len(), weights(&layers, "excitation").len()), (0, 0));
}

#[test]
fn parameters_are_all_numbers_but_running_statistics() {
    let plain = Architecture { blocks: 1, squeeze_excitation: 0, global_pooling: 0, ..complete() };
    let convolutions = 2 * 16 * 9 + 2 * 16 * 16 * 9 + 2 * 16 * 32 + 2 * (3 * 16 + 2 * 32);
    let linear = (12 * 32 + 1) * (5 + 64) + 65 * 3;
    assert_eq!(Layers::new(&plain).unwrap().parameters(), convolutions + linear);
}

#[test]
fn multiply_adds_are_those_of_cells_with_cells() {
    let layers = Layers::new(&complete()).unwrap();
    // Pairs of cells at most one apart along each side.
    let near = |a: usize, b: usize| a.abs_diff(b) <= 1;
    let along = |n: usize| (0..n).map(|a| (0..n).filter(|b| near(a, *b)).count()).sum::<usize>();
    let convolutions = along(3) * along(4) * (2 * 16 + 6 * 16 * 16) + 12 * 2 * 16 * 32;
    let linear = 12 * 8 + 3 * (16 * 8 + 8 * 32) + 12 * 32 * (5 + 64) + 64 * 3;
    assert_eq!(layers.multiply_adds(), convolutions + linear);
}

#[test]
fn another_design_is_refused_for_a_model_that_has_the_default() {
    let others = [
        (Design { activation: Activation::Mish, ..Design::default() }, "activation mish"),
        (Design { block: BlockKind::Bottleneck, ..Design::default() }, "block bottleneck"),
        (Design { norm: NormKind::Layer, ..Design::default() }, "norm layer"),
        (Design { attention: 2, attention_heads: 4, ..Design::default() }, "attention 2"),
        (Design { heads: HeadKind::Pooled, ..Design::default() }, "heads pooled"),
    ];
    for (design, part) in others {
        let other = Architecture { design, model: Model::Muzero { support: 5 }, actions: 12, ..complete() };
        let error = check(&other).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("alphazero"), "{error}");
        assert_eq!(check(&Architecture { design, actions: 12, ..complete() }), Ok(()));
    }
}

#[test]
fn no_tensor_of_a_network_with_pooled_heads_depends_on_the_board() {
    let design = Design { heads: HeadKind::Pooled, ..Design::default() };
    let on = |height: usize, width: usize| {
        let actions = 3 * height * width + 2;
        Layers::new(&Architecture { design, height, width, actions, ..complete() }).unwrap()
    };
    let (small, large) = (on(3, 4), on(9, 7));
    assert!(small.tensors().eq(large.tensors()));
    let expected: [(&str, &[usize]); 4] = [
        ("policy.output.weight", &[3, 32]),
        ("policy.rest.weight", &[2, 96]),
        ("value.hidden.weight", &[64, 96]),
        ("value.output.weight", &[3, 64]),
    ];
    let tensors: Vec<_> = small.tensors().collect();
    for (name, shape) in expected {
        assert!(tensors.iter().any(|tensor| tensor.name == name && tensor.shape == shape), "{name}");
    }
    let flattened = Layers::new(&Architecture { actions: 38, ..complete() }).unwrap();
    let [before, after] = [12 * 32 * (38 + 64), 12 * 32 * 3 + 96 * (2 + 64)];
    assert_eq!(flattened.multiply_adds() - before, small.multiply_adds() - after);
    assert_eq!(check(&Architecture { design, ..complete() }), Err(Error::PooledHeads { actions: 5, cells: 12 }));
}

#[test]
fn attention_blocks_stand_behind_the_residual_ones_and_count_pairs_of_cells() {
    let design = Design { attention: 2, attention_heads: 4, ..Design::default() };
    let architecture = Architecture { blocks: 0, design, ..complete() };
    let expected: [(&str, &[usize]); 10] = [
        ("attention.1.qkv.weight", &[48, 16]),
        ("attention.1.qkv.bias", &[48]),
        ("attention.1.qkv.norm.weight", &[16]),
        ("attention.1.qkv.norm.bias", &[16]),
        ("attention.1.position.offsets", &[4, 5 * 7]),
        ("attention.1.output.weight", &[16, 16]),
        ("attention.1.output.bias", &[16]),
        ("attention.1.hidden.weight", &[32, 16]),
        ("attention.1.hidden.bias", &[32]),
        ("attention.1.hidden.norm.weight", &[16]),
    ];
    let layers = Layers::new(&architecture).unwrap();
    let tensors: Vec<_> = layers.tensors().filter(|tensor| tensor.name.starts_with("attention.1.")).collect();
    for (name, shape) in expected {
        assert!(tensors.iter().any(|tensor| tensor.name == name && tensor.shape == shape), "{name}: {tensors:?}");
    }
    assert_eq!(tensors.len(), 13);
    let without = Architecture { design: Design::default(), ..architecture.clone() };
    let added = layers.multiply_adds() - Layers::new(&without).unwrap().multiply_adds();
    // Four C · C matrices, two 2 C · C matrices, and two products for each pair of cells: score and sum.
    assert_eq!(added, 2 * (12 * (8 * 16 * 16) + 2 * 12 * 12 * 16));
    for (heads, reason) in [(3, "divisible by 3, got 16"), (0, "of 0 heads")] {
        let uneven = Design { attention_heads: heads, ..design };
        let error = check(&Architecture { design: uneven, ..architecture.clone() }).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    let idle = Architecture { design: Design { attention: 0, ..design }, ..architecture };
    assert!(matches!(check(&idle), Err(Error::AttentionHeads { attention: 0, heads: 4, .. })));
}

#[test]
fn norms_of_single_positions_have_no_running_statistics() {
    for norm in [NormKind::Layer, NormKind::Group] {
        let design = Design { norm, ..Design::default() };
        let layers = Layers::new(&Architecture { design, ..complete() }).unwrap();
        assert!(layers.tensors().all(|tensor| tensor.role.is_trained()), "{norm}");
        assert_eq!(layers.parameters(), Layers::new(&complete()).unwrap().parameters());
    }
    let group = Design { norm: NormKind::Group, ..Design::default() };
    let narrow = Architecture { design: group, channels: 24, ..complete() };
    assert_eq!(check(&narrow), Err(Error::GroupChannels { group: 16, channels: 24 }));
}

#[test]
fn a_bottleneck_has_a_convolution_down_and_one_up_around_two_of_half_the_channels() {
    let design = Design { block: BlockKind::Bottleneck, ..Design::default() };
    let architecture = Architecture { design, ..complete() };
    let expected: [(&str, &[usize]); 7] = [
        ("block.2.down.convolution.weight", &[8, 16, 1, 1]),
        ("block.2.first.convolution.weight", &[8, 8, 3, 3]),
        ("block.2.second.convolution.weight", &[8, 8, 3, 3]),
        ("block.2.up.convolution.weight", &[16, 8, 1, 1]),
        ("block.2.pooling.weight", &[4, 8]),
        ("block.2.excitation.hidden.weight", &[8, 16]),
        ("block.2.excitation.output.weight", &[32, 8]),
    ];
    let expected: Vec<_> = expected.map(|(name, shape)| (name.to_owned(), shape.to_vec())).into();
    let layers = Layers::new(&architecture).unwrap();
    assert_eq!(weights(&layers, "block.2."), expected);
    assert_eq!(layers.blocks[2].last().name, "block.2.up");
    let odd = Architecture { channels: 17, ..architecture.clone() };
    assert!(check(&odd).unwrap_err().to_string().contains("got 17"));
    let pooled = Architecture { global_pooling: 8, ..architecture };
    assert!(check(&pooled).unwrap_err().to_string().contains("global_pooling 8"));
}

#[test]
fn a_dimension_out_of_range_is_named() {
    let attentive = Design { attention: 1, attention_heads: 4, ..Design::default() };
    let frame = |height, planes| Architecture { height, planes, ..complete() };
    for (height, planes) in [(SIDE_MAX, 4), (1, PLANES_MAX)] {
        check(&frame(height, planes)).unwrap();
    }
    for (architecture, what) in [
        (frame(SIDE_MAX + 1, 4), "height 97"),
        (frame(1, PLANES_MAX + 1), "planes 4097"),
        (Architecture { design: attentive, ..frame(ATTENTION_SIDE_MAX + 1, 4) }, "height 65"),
        (Architecture { blocks: 257, ..complete() }, "blocks 257"),
        (Architecture { height: 0, ..complete() }, "height 0"),
        (Architecture { global_pooling: 16, ..complete() }, "global_pooling 16"),
    ] {
        assert!(Layers::new(&architecture).unwrap_err().to_string().contains(what));
    }
}
