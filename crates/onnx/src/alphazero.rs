use network::{HeadKind, Layers, Reader, mean_scale};
use weights::Architecture;

use crate::Error;
use crate::graph::Element;
use crate::layers::Writer;
use crate::messages::Model;
use crate::outputs;

/// Returns the model of an AlphaZero network that predicts win, draw and loss.
pub(crate) fn model(architecture: &Architecture, reader: &mut Reader<'_>) -> Result<Model, Error> {
    let layers = Layers::new(architecture)?;
    let &Architecture { planes, height, width, actions, .. } = architecture;
    let mut writer = Writer::new(architecture, reader);
    let observations = writer.graph.input("observations", Element::F32, &[planes, height, width]);
    let mut x = writer.features(&layers.stem, &observations)?;
    for block in &layers.blocks {
        x = writer.block(block, &x)?;
    }
    x = writer.attend(&layers.attention, &x)?;
    let of_policy = writer.features(&layers.policy, &x)?;
    let of_value = writer.features(&layers.value, &x)?;
    let (logits, of_value) = match architecture.design.heads {
        HeadKind::Flattened => {
            let of_policy = writer.flattened(&of_policy);
            (writer.linear(&layers.policy_output, &of_policy)?, writer.flattened(&of_value))
        }
        HeadKind::Pooled => {
            let scale = Some(mean_scale(height * width));
            let of_cells = writer.pointwise(&layers.policy_output, &of_policy)?;
            let mut logits = writer.flattened(&of_cells);
            if let Some(rest) = &layers.policy_rest {
                let pooled = writer.pooled(&of_policy, scale);
                let pooled = writer.graph.flatten(&pooled);
                let others = writer.linear(rest, &pooled)?;
                logits = writer.graph.concatenate(&[&logits, &others]);
            }
            let pooled = writer.pooled(&of_value, scale);
            (logits, writer.graph.flatten(&pooled))
        }
    };
    outputs::policy(&mut writer.graph, &logits, actions);
    let hidden = writer.linear(&layers.value_hidden, &of_value)?;
    let hidden = writer.activate(&hidden);
    let results = writer.linear(&layers.value_output, &hidden)?;
    outputs::results(&mut writer.graph, &results);
    Ok(writer.graph.model(&architecture.game))
}
