//! Networks that grow compute the same outputs and continue training.

use training::checkpoint::State;
use training::growth::grow;
use training::{Decay, Examples, MomentFormat, Trainer as _, TrainerSettings};
use weights::{Activation, Architecture, BlockKind, Design, NormKind};

use crate::Trainer;
use crate::reference::reference;
use crate::tests::networks::{batch, complete, numbers, pooled};

/// Networks, each with a larger one that it can become.
fn pairs() -> [[Architecture; 2]; 8] {
    let narrow = |activation| Design { activation, block: BlockKind::Bottleneck, ..Design::default() };
    let small = |design| Architecture { design, channels: 10, ..complete() };
    let [plain, relu] = [Design::default(), narrow(Activation::Relu)].map(small);
    let mish = small(narrow(Activation::Mish));
    let attention = |norm| Design { norm, attention: 1, attention_heads: 2, ..Design::default() };
    let layer = small(attention(NormKind::Layer));
    let group = Design { norm: NormKind::Group, ..Design::default() };
    let group = Architecture { channels: 16, ..small(group) };
    let pooled = pooled([3, 4], 1, 1);
    [
        [plain.clone(), Architecture { blocks: 5, ..plain.clone() }],
        [plain.clone(), Architecture { channels: 15, squeeze_excitation: 8, ..plain }],
        [relu.clone(), Architecture { channels: 14, blocks: 4, ..relu }],
        [mish.clone(), Architecture { channels: 12, ..mish.clone() }],
        [mish.clone(), Architecture { design: Design { attention: 2, attention_heads: 5, ..mish.design }, ..mish }],
        [layer.clone(), Architecture { blocks: 4, ..layer }],
        [group.clone(), Architecture { channels: 32, ..group }],
        [pooled.clone(), Architecture { channels: 15, blocks: 2, ..pooled }],
    ]
}

fn settings() -> TrainerSettings {
    TrainerSettings { warm_up_steps: 0, decay: Decay::Constant, learning_rate: 3e-3, ..TrainerSettings::default() }
}

#[test]
fn a_larger_network_has_the_same_losses_in_float64() {
    for [from, to] in pairs() {
        let [old, new] = [&from, &to].map(|it| settings().layers(it).unwrap().layout());
        let network = numbers(&old, 3);
        let state = State {
            average: network.clone(),
            moments: Vec::new(),
            network,
            step: 1,
            progress: 0.0,
            averaged_since: None,
            mixed: Default::default(),
        };
        let grown = grow(&from, &to, &state, 5).unwrap();
        let batch = batch(&from, 6, 4);
        let before = reference(&from, &old, &state.network, &batch, 1.0);
        let after = reference(&to, &new, &grown.network, &batch, 1.0);
        for (before, after) in [(before.policy, after.policy), (before.value, after.value)] {
            assert!((before - after).abs() < 1e-12, "{before} became {after}: {from:?} in {to:?}");
        }
    }
}

#[test]
fn training_goes_on_in_a_larger_network_with_the_loss_that_it_had() {
    for [from, to] in pairs() {
        let layout = settings().layers(&from).unwrap().layout();
        let larger = settings().layers(&to).unwrap().layout();
        let examples = Examples::Positions(batch(&from, 16, 3));
        let without_l2 = |trainer: &mut Trainer| {
            let losses = trainer.step(&examples).unwrap();
            losses.policy + losses.value
        };
        let mut trainer = Trainer::new(&from, settings(), 1, 2).unwrap();
        for _ in 0..3 {
            without_l2(&mut trainer);
        }
        let files = trainer.files().unwrap();
        let state = State::read(&layout, settings().optimiser, MomentFormat::F32, &files).unwrap();
        let grown = grow(&from, &to, &state, 1).unwrap().files(&larger, settings().optimiser).unwrap();
        let mut wide = Trainer::new(&to, settings(), 2, 2).unwrap();
        wide.load(&grown).unwrap();
        assert_eq!(wide.step_count(), 3);
        let (before, after) = (without_l2(&mut trainer), without_l2(&mut wide));
        assert!((before - after).abs() < 1e-4, "{before} became {after}: {from:?} in {to:?}");
        let last = (0..40).map(|_| without_l2(&mut wide)).last().unwrap();
        assert!(last < after - 0.02, "{last} after {after}: {to:?}");
    }
}
