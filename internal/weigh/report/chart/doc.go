// SPDX-License-Identifier: Apache-2.0

// Package chart draws bars, dots, lines and points as SVG that follows the reader's light or dark scheme. It knows
// values, names and inks, and neither what was measured nor by what kind of load.
package chart
