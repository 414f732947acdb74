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
/// With a = |x| + 1 + ε, the root in `inference::categorical` is 2a / (1 + √(1 + 4εa)). This form subtracts no numbers
/// of similar size, and so needs no float64.
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
    use inference::categorical;

    #[test]
    fn the_form_without_subtractions_is_the_inverse_transform() {
        assert_eq!(super::EPSILON, categorical::EPSILON);
        for x in [-300.0, -1.5, -1e-6, 0.0, 1e-6, 0.5, 20.0, 1024.0_f64] {
            let a = x.abs() + 1.0 + super::EPSILON;
            let root = 2.0 * a / (1.0 + (1.0 + 4.0 * super::EPSILON * a).sqrt());
            let (got, expected) = (x.signum() * (root * root - 1.0), categorical::inverse_transform(x));
            assert!((got - expected).abs() <= 1e-9 * (1.0 + expected.abs()), "{x} became {got}, not {expected}");
        }
    }
}
