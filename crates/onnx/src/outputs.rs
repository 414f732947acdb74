//! Outputs of policies and values from logits, as the evaluators of this project return them.

use crate::graph::{Builder, Element, Value};
use crate::messages::Attribute;

/// ε of the invertible transform of categorical values, as in `inference::categorical`.
pub(crate) const EPSILON: f64 = 0.001;

/// Adds the output `policy_logits`, the input `legal` and the output `priors`: shares of the legal actions, and 0 for
/// all other actions. A position without legal actions has priors of 0.
pub(crate) fn policy(graph: &mut Builder, logits: &Value, actions: usize) {
    graph.output(logits, "policy_logits", &[actions]);
    let legal = graph.input("legal", Element::Bool, &[actions]);
    // Finite, so that the shares are finite without a legal action.
    let least = graph.number(f64::from(f32::MIN));
    let masked = graph.apply("Where", &[&legal, logits, &least]);
    let shares = graph.softmax(&masked);
    // Implementations may bound the exponential from below.
    let mask = graph.node("Cast", &[&legal], vec![Attribute::int("to", Element::F32 as i64)]);
    let priors = graph.apply("Mul", &[&shares, &mask]);
    graph.output(&priors, "priors", &[actions]);
}

/// Adds the outputs `wdl`, the probabilities of win, draw and loss, and `value`, win − loss, from logits `[N, 3]`.
pub(crate) fn results(graph: &mut Builder, logits: &Value) {
    let wdl = graph.softmax(logits);
    graph.output(&wdl, "wdl", &[3]);
    let of_result = graph.weights("value_of_result", &[3], &[1.0, 0.0, -1.0]);
    let value = graph.apply("MatMul", &[&wdl, &of_result]);
    graph.output(&value, "value", &[]);
}

/// Adds a number `[N]` to the outputs, from logits over the 2n + 1 atoms: the inverse transform of the mean atom x.
///
/// With a = |x| + 1 + ε, the root in `inference::categorical` is 2a / (1 + √(1 + 4εa)). In float32 this form has an
/// absolute error of at most 10⁻⁶ (1 + |value|). The form there would have a hundred times that error without float64,
/// since the root minus 1 is divided by 2ε.
pub(crate) fn expectation(graph: &mut Builder, logits: &Value, support: usize, name: &str) {
    let shares = graph.softmax(logits);
    let atoms: Vec<f32> = (0..=2 * support).map(|atom| atom as f32 - support as f32).collect();
    let atoms = graph.weights(&format!("{name}_atoms"), &[atoms.len()], &atoms);
    let x = graph.apply("MatMul", &[&shares, &atoms]);
    let [one, two, from_zero, slope] = [1.0, 2.0, 1.0 + EPSILON, 4.0 * EPSILON].map(|number| graph.number(number));
    let distance = graph.apply("Abs", &[&x]);
    let a = graph.apply("Add", &[&distance, &from_zero]);
    let scaled = graph.apply("Mul", &[&a, &slope]);
    let radicand = graph.apply("Add", &[&scaled, &one]);
    let of_radicand = graph.apply("Sqrt", &[&radicand]);
    let divisor = graph.apply("Add", &[&of_radicand, &one]);
    let dividend = graph.apply("Mul", &[&a, &two]);
    let root = graph.apply("Div", &[&dividend, &divisor]);
    let square = graph.apply("Mul", &[&root, &root]);
    let size = graph.apply("Sub", &[&square, &one]);
    let sign = graph.apply("Sign", &[&x]);
    let value = graph.apply("Mul", &[&sign, &size]);
    graph.output(&value, name, &[]);
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use inference::categorical::{self, Support};

    use super::*;
    use crate::messages::Graph;

    /// Computes the output of a graph for the input `logits` of one position, in float32.
    fn computed(graph: &Graph, logits: &[f32]) -> f32 {
        let mut values = HashMap::from([("logits", logits.to_vec())]);
        for tensor in &graph.initializer {
            let numbers = tensor.raw_data.as_chunks().0.iter().map(|&chunk| f32::from_le_bytes(chunk)).collect();
            values.insert(&tensor.name, numbers);
        }
        for node in &graph.node {
            let inputs: Vec<&[f32]> = node.input.iter().map(|name| values[name.as_str()].as_slice()).collect();
            let output = match (node.op_type.as_str(), &inputs[..]) {
                ("Identity", [x]) => x.to_vec(),
                ("Softmax", [x]) => {
                    let greatest = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                    let shares: Vec<f32> = x.iter().map(|logit| (logit - greatest).exp()).collect();
                    let total: f32 = shares.iter().sum();
                    shares.iter().map(|share| share / total).collect()
                }
                ("MatMul", [x, y]) => vec![x.iter().zip(*y).map(|(x, y)| x * y).sum()],
                ("Abs", &[&[x]]) => vec![x.abs()],
                ("Sqrt", &[&[x]]) => vec![x.sqrt()],
                ("Sign", &[&[x]]) => vec![if x == 0.0 { 0.0 } else { x.signum() }],
                ("Add", &[&[x], &[y]]) => vec![x + y],
                ("Sub", &[&[x], &[y]]) => vec![x - y],
                ("Mul", &[&[x], &[y]]) => vec![x * y],
                ("Div", &[&[x], &[y]]) => vec![x / y],
                (operator, inputs) => panic!("{operator} of {inputs:?}"),
            };
            values.insert(&node.output[0], output);
        }
        values[graph.output[0].name.as_str()][0]
    }

    #[test]
    fn the_nodes_of_an_expectation_compute_the_value_of_the_support_in_float32() {
        assert_eq!(EPSILON, categorical::EPSILON);
        for bound in [1, 5, 300, 1024] {
            let mut graph = Builder::default();
            let logits = graph.input("logits", Element::F32, &[2 * bound + 1]);
            expectation(&mut graph, &logits, bound, "value");
            let graph = graph.model("any").graph.unwrap();
            let check = |logits: &[f32], tolerance: f32| {
                let (got, expected) = (computed(&graph, logits), Support { bound }.value(logits));
                let error = (got - expected).abs();
                assert!(error <= tolerance * (1.0 + expected.abs()), "bound {bound}: {got}, not {expected}");
            };
            // The expected atom is exact if it has the whole share.
            for atom in 0..=2 * bound {
                let mut logits = vec![f32::NEG_INFINITY; 2 * bound + 1];
                logits[atom] = 0.0;
                check(&logits, 1e-6);
            }
            // Sums in another order have an error of about 10⁻⁷ of the bound.
            let waves: Vec<f32> = (0..=2 * bound).map(|atom| 3.0 * (atom as f32 * 0.7).sin()).collect();
            check(&waves, 1e-6 * bound as f32);
        }
    }
}
