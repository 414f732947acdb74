//! LSTM step (Hochreiter and Schmidhuber 1997) after the gate matrix: `c' = sigmoid(f) c + sigmoid(i) tanh(g)`,
//! `h' = sigmoid(o) tanh(c')`.

/// Inputs of a step for a range of rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step<'a> {
    /// i, f, g and o, `[N, 4, units]`.
    pub(crate) gates: &'a [f32],
    /// Previous cell c, `[N, units]`; `None` counts as 0.
    pub(crate) before: Option<&'a [f32]>,
}

/// Gradients of the step's results, `[N, units]` each; `None` counts as 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OfResults<'a> {
    pub(crate) cell: Option<&'a [f32]>,
    pub(crate) output: Option<&'a [f32]>,
}

impl Step<'_> {
    /// Writes `c'` and `h'`, `[N, units]` each.
    pub(crate) fn forward(&self, units: usize, cells: &mut [f32], outputs: &mut [f32]) {
        for (index, (cell, output)) in cells.iter_mut().zip(outputs).enumerate() {
            let [input, forget, candidate, out] = self.gates_of(units, index);
            let kept = self.before.map_or(0.0, |before| sigmoid(forget) * before[index]);
            *cell = kept + sigmoid(input) * candidate.tanh();
            *output = sigmoid(out) * cell.tanh();
        }
    }

    /// Writes the gradients of the gates, `[N, 4, units]`, and of c, `[N, units]`; `cells` holds `c'`.
    pub(crate) fn backward(
        &self,
        units: usize,
        cells: &[f32],
        of: OfResults<'_>,
        of_gates: &mut [f32],
        of_before: &mut [f32],
    ) {
        for (index, cell) in cells.iter().enumerate() {
            let [input, forget, candidate, out] = self.gates_of(units, index);
            let [input, forget, candidate, out] = [sigmoid(input), sigmoid(forget), candidate.tanh(), sigmoid(out)];
            let of_output = of.output.map_or(0.0, |of| of[index]);
            let tanh = cell.tanh();
            let of_cell = of.cell.map_or(0.0, |of| of[index]) + of_output * out * (1.0 - tanh * tanh);
            let before = self.before.map_or(0.0, |before| before[index]);
            let first = first_gate(units, index);
            of_gates[first] = of_cell * candidate * input * (1.0 - input);
            of_gates[first + units] = of_cell * before * forget * (1.0 - forget);
            of_gates[first + 2 * units] = of_cell * input * (1.0 - candidate * candidate);
            of_gates[first + 3 * units] = of_output * tanh * out * (1.0 - out);
            if let Some(of_before) = of_before.get_mut(index) {
                *of_before = of_cell * forget;
            }
        }
    }

    fn gates_of(&self, units: usize, index: usize) -> [f32; 4] {
        let first = first_gate(units, index);
        [0, 1, 2, 3].map(|gate| self.gates[first + gate * units])
    }
}

/// Returns the index of a unit's first gate.
fn first_gate(units: usize, index: usize) -> usize {
    index / units * 4 * units + index % units
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}
