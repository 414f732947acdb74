//! Functions over whole positions or rows, compiled for each floating-point path.

/// Defines the `functions` of a path, with the attributes that enable the path's instructions, or the `methods` of
/// [`Multiplier`](crate::multiplier::Multiplier) that call them.
///
/// Each entry has the parameters, and the call of plain Rust that is inlined into the function of a path.
macro_rules! passes {
    (functions $(#[$attribute:meta])*) => { $crate::passes::passes! { @list function [$(#[$attribute])*] } };
    (methods) => { $crate::passes::passes! { @list method [] } };
    (@list $form:ident $attributes:tt) => {
        $crate::passes::passes! {
            @each $form $attributes

            activate(y: &mut $crate::planes::Planes, position: usize, activation: ::network::Activation, channels: usize)
                = $crate::pooling::activate(y, position, activation, channels);
            pool(
                activation: ::network::Activation,
                y: &mut $crate::planes::Planes,
                position: usize,
                pooling: &$crate::folded::Dense,
                channels: usize,
                with: &mut $crate::pooling::Summaries
            ) = ::network::with_function!(
                activation,
                f => $crate::pooling::pool(f, y, position, pooling, channels, with)
            );
            excite(
                activation: ::network::Activation,
                z: &$crate::planes::Planes,
                x: &mut $crate::planes::Planes,
                position: usize,
                excitation: &$crate::folded::Excitation,
                channels: usize,
                with: &mut $crate::pooling::Summaries
            ) = ::network::with_function!(
                activation,
                f => $crate::pooling::excite(f, z, x, position, excitation, channels, with)
            );
            multiply_pooled(
                activation: ::network::Activation,
                features: &$crate::planes::Planes,
                position: usize,
                matrices: &$crate::pooling::PooledMatrices,
                logits: &mut [f32],
                hidden: &mut [f32]
            ) = ::network::with_function!(
                activation,
                f => $crate::pooling::multiply_pooled(f, features, position, matrices, logits, hidden)
            );
            finish_rows(
                finish: &$crate::latent::rows::Finish<'_>,
                rows: usize,
                sums: &mut [f32],
                padded: usize,
                output: &mut $crate::planes::Planes
            ) = $crate::latent::rows::finish_rows(finish, rows, sums, padded, output);
            rescale(planes: &mut $crate::planes::Planes, position: usize, channels: usize)
                = $crate::latent::rows::rescale(planes, position, channels);
            means_of_atoms(logits: &[f32], padded: usize, bound: usize, means: &mut [f32])
                = $crate::latent::rows::means_of_atoms(logits, padded, bound, means);
            normalise(norm: &$crate::position_norm::PositionNorm, y: &mut $crate::planes::Planes, position: usize)
                = $crate::position_norm::normalise(norm, y, position);
            add(z: &$crate::planes::Planes, x: &mut $crate::planes::Planes, position: usize, channels: usize)
                = $crate::position_norm::add(z, x, position, channels);
            take_cells(
                planes: &$crate::planes::Planes,
                positions: ::std::ops::Range<usize>,
                channels: usize,
                to: &mut [f32]
            ) = $crate::cells::take_cells(planes, positions, channels, to);
            put_cells(
                from: &[f32],
                channels: usize,
                positions: ::std::ops::Range<usize>,
                planes: &mut $crate::planes::Planes
            ) = $crate::cells::put_cells(from, channels, positions, planes);
            standardise(from: &[f32], channels: usize, to: &mut $crate::planes::Planes)
                = $crate::cells::standardise(from, channels, to);
            attend(
                sizes: $crate::cells::Sizes,
                pairs: &[f32],
                qkv: &[f32],
                padded: usize,
                shares: &mut $crate::cells::Shares,
                to: &mut $crate::planes::Planes
            ) = $crate::cells::attend(sizes, pairs, qkv, padded, shares, to);
            add_rows(sums: &[f32], padded: usize, channels: usize, to: &mut [f32])
                = $crate::cells::add_rows(sums, padded, channels, to);
            activate_rows(
                activation: ::network::Activation,
                sums: &[f32],
                padded: usize,
                to: &mut $crate::planes::Planes
            ) = ::network::with_function!(activation, f => $crate::cells::activate_rows(f, sums, padded, to));
        }
    };
    (@each $form:ident $attributes:tt $($name:ident $parameters:tt = $call:expr;)*) => {
        $($crate::passes::passes! { @$form $attributes $name $parameters = $call })*
    };
    (@function [$(#[$attribute:meta])*] $name:ident ($($parameter:ident: $kind:ty),*) = $call:expr) => {
        $(#[$attribute])*
        pub(crate) fn $name($($parameter: $kind),*) {
            $call;
        }
    };
    (@method [] $name:ident ($($parameter:ident: $kind:ty),*) = $call:expr) => {
        pub(crate) fn $name(&self, $($parameter: $kind),*) {
            $crate::variant::of_leaf!(self.path, $name($($parameter),*));
        }
    };
}
pub(crate) use passes;
