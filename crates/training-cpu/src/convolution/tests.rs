use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::Packed;
use crate::Path;
use crate::buffer::Buffer;
use crate::filtering::Filtered;
use crate::matrix::{GradientPart, Kernel};
use crate::shape::Shape;

/// Boards and channels of whole and broken registers, with batches of whole and broken tiles.
const SHAPES: [(usize, Shape); 9] = [
    (1, Shape { side: 3, height: 1, width: 1, inputs: 1, outputs: 1 }),
    (7, Shape { side: 3, height: 1, width: 5, inputs: 3, outputs: 5 }),
    (13, Shape { side: 3, height: 6, width: 7, inputs: 16, outputs: 24 }),
    (2, Shape { side: 3, height: 19, width: 19, inputs: 5, outputs: 33 }),
    (15, Shape { side: 3, height: 2, width: 2, inputs: 40, outputs: 17 }),
    (6, Shape { side: 3, height: 3, width: 3, inputs: 33, outputs: 64 }),
    (5, Shape { side: 1, height: 3, width: 4, inputs: 19, outputs: 32 }),
    (300, Shape { side: 1, height: 1, width: 1, inputs: 70, outputs: 7 }),
    (1, Shape { side: 1, height: 1, width: 1, inputs: 1, outputs: 3 }),
];

fn draw(rng: &mut ChaCha8Rng, len: usize) -> Buffer {
    let mut values = Buffer::zeros(len);
    values.iter_mut().for_each(|value| *value = rng.random_range(-1.0..1.0));
    values
}

/// Calls `product` with the indices of `y`, weight and `x` of every product of the convolution.
fn products(positions: usize, shape: Shape, mut product: impl FnMut(usize, usize, usize)) {
    let Shape { inputs, outputs, .. } = shape;
    for position in 0..positions {
        for (cell, pairs) in shape.pairs().iter().enumerate() {
            for (pair, output) in pairs.iter().flat_map(|pair| (0..outputs).map(move |output| (pair, output))) {
                for input in 0..inputs {
                    let y = (position * shape.cells() + cell) * outputs + output;
                    let x = (position * shape.cells() + pair.cell) * inputs + input;
                    product(y, (output * shape.taps() + pair.tap) * inputs + input, x);
                }
            }
        }
    }
}

fn assert_close(what: &str, got: &[f32], expected: &[f64]) {
    let square = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|x| x * x).sum::<f64>();
    let apart = square(&mut got.iter().zip(expected).map(|(got, expected)| f64::from(*got) - expected));
    let error = (apart / square(&mut expected.iter().copied())).sqrt();
    assert!(got.len() == expected.len() && error < 5e-6, "{what}: relative error {error}");
}

/// The paths of this CPU; a line of output names each that it lacks.
fn paths() -> impl Iterator<Item = Path> {
    Path::ALL.into_iter().filter(|path| {
        let is_available = path.is_available();
        if !is_available {
            println!("skipped: this CPU lacks {path}");
        }
        is_available
    })
}

type New = fn(Shape, Path) -> Kernel;

fn kernels() -> [(&'static str, New); 2] {
    [
        ("direct", |shape, path| Kernel::Direct(Packed::new(shape, path))),
        ("filtered", |shape, path| Kernel::Filtered(Filtered::new(shape, path))),
    ]
}

#[test]
fn outputs_and_both_gradients_agree_with_float64_on_every_path() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for (path, (positions, shape)) in paths().flat_map(|path| SHAPES.map(|shape| (path, shape))) {
        let [of_x, of_y] = [shape.inputs, shape.outputs].map(|channels| positions * shape.cells() * channels);
        let of_weights = shape.outputs * shape.taps() * shape.inputs;
        let [x, weights, gradient, bias] = [of_x, of_weights, of_y, shape.outputs].map(|len| draw(&mut rng, len));
        let mut expected = [vec![0.0; of_y], vec![0.0; of_x], vec![0.0; of_weights]];
        products(positions, shape, |y, weight, input| {
            expected[0][y] += f64::from(weights[weight]) * f64::from(x[input]);
            expected[1][input] += f64::from(weights[weight]) * f64::from(gradient[y]);
            expected[2][weight] += f64::from(x[input]) * f64::from(gradient[y]);
        });

        for (name, kernel) in kernels() {
            if name == "filtered" && shape.side == 1 {
                continue;
            }
            let what = format!("{name}, {shape:?}, {path}");
            let mut y = vec![f32::NAN; of_y];
            let mut packed = kernel(shape, path);
            packed.pack(&weights);
            packed.convolve(&x, None, &mut y);
            assert_close(&format!("outputs, {what}"), &y, &expected[0]);

            let mut input = vec![f32::NAN; of_x];
            let mut packed = kernel(shape.transposed(), path);
            packed.pack_transposed(&weights);
            packed.convolve(&gradient, None, &mut input);
            assert_close(&format!("input gradient, {what}"), &input, &expected[1]);

            let mut weight = vec![0.0; of_weights];
            let flat = if shape.side == 1 { positions * shape.cells() } else { positions };
            let of_weight = kernel(shape, path).gradient(flat, path);
            let mut sums = vec![f32::NAN; of_weight.sums()];
            of_weight.parts(&x, &gradient, &mut sums).into_iter().for_each(GradientPart::compute);
            let (first, second) = weight.split_at_mut(of_weights / shape.outputs);
            of_weight.add(&sums, 0..1, first);
            of_weight.add(&sums, 1..shape.outputs, second);
            assert_close(&format!("weight gradient, {what}"), &weight, &expected[2]);
        }
        let mut y = vec![f32::NAN; of_y];
        let mut packed = Packed::new(shape, path);
        packed.pack(&weights);
        packed.convolve(&x, Some(&bias), &mut y);
        expected[0].iter_mut().enumerate().for_each(|(index, y)| *y += f64::from(bias[index % shape.outputs]));
        assert_close(&format!("outputs with bias of {shape:?}, {path}"), &y, &expected[0]);
    }
}
