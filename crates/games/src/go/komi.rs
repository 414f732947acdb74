/// The points that White receives for moving second, in half points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Komi {
    half_points: i16,
}

impl Komi {
    /// Returns a komi of whole or half points, from −361 to 361.
    #[must_use]
    pub fn new(points: f32) -> Option<Self> {
        let half_points = 2.0 * points;
        let fits = half_points.fract() == 0.0 && half_points.abs() <= 722.0;
        // The cast is exact: an integer within the range.
        fits.then_some(Self { half_points: half_points as i16 })
    }

    /// Returns the komi for a board of `size` cells a side, with which best play is or may be a draw.
    ///
    /// Whole points: on boards with an odd number of cells, games without neutral cells end with an odd difference.
    /// Half a point more or less would only give the games of best play to the same colour, and values would become
    /// values of the colour.
    ///
    /// Black wins by 4 points on 6x6 (van der Werf and Winands, "Solving Go for Rectangular Boards", 2009), and
    /// strong programs win by 9 on 7x7, by 10 on 8x8 and by 7 on 9x9. On larger boards, 7 is the integer below the
    /// komi of 7.5 in area scoring. On 5x5, Black owns all 25 cells (van der Werf, van den Herik and Uiterwijk,
    /// "Solving Go on Small Boards", 2003): with 24 both players can win.
    pub(super) const fn usual(size: usize) -> Self {
        let points = match size {
            0..=5 => 24,
            6 => 4,
            7 => 9,
            8 => 10,
            _ => 7,
        };
        Self { half_points: 2 * points }
    }

    /// Returns the number of points.
    #[must_use]
    pub fn points(self) -> f32 {
        f32::from(self.half_points) / 2.0
    }

    /// Returns twice the number of points.
    pub(super) fn half_points(self) -> i32 {
        self.half_points.into()
    }
}
