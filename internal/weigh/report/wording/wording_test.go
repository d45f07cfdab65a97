// SPDX-License-Identifier: Apache-2.0

package wording

import "testing"

func TestNumbers(t *testing.T) {
	tests := []struct{ got, want string }{
		{Decimal(1234567.891, 1), "1,234,567.9"},
		{Decimal(-0.4, 1), "−0.4"},
		{Decimal(-0.04, 1), "0.0"},
		{Decimal(2e15, 0), "2e+15"},
		{RatioText(0.0123), "0.012"},
		{RatioText(0.0000123), "1.2e-05"},
		{RatioText(0), "0.00"},
		{RatioText(1.925), "1.93"},
		{RatioText(12.34), "12.3"},
		{RatioText(123.4), "123"},
		{Fraction(0.083), "1/12"},
		{Fraction(0.95), "0.95 ×"},
		{PercentMore(4.66), "+4.7 %"},
		{PercentMore(1234.5), "+1,234 %"},
		{BytesText(5120), "5 KiB"},
		{BytesText(1536), "1.5 KiB"},
		{BytesText(25769803776), "24 GiB"},
		{Short(5000, 12000), "5,000"},
		{Short(250000, 300000), "250k"},
		{Short(0, 300000), "0"},
		{Short(-2.5, 10), "−2.5"},
		{Clean("a\tb\x1b[0m\xff"), "a b\ufffd[0m\ufffd"},
	}
	for _, test := range tests {
		if test.got != test.want {
			t.Errorf("got %q, want %q", test.got, test.want)
		}
	}
}

func TestDecimalsFor(t *testing.T) {
	tests := []struct {
		values []float64
		want   int
	}{
		{nil, 0},
		{[]float64{0}, 0},
		{[]float64{12, 400}, 0},
		{[]float64{1.5, 30}, 1},
		{[]float64{0.05, 30}, 3},
		{[]float64{0.05, 5000}, 1},
		{[]float64{0.05, 500000}, 0},
	}
	for _, test := range tests {
		if got := DecimalsFor(test.values); got != test.want {
			t.Errorf("decimalsFor(%v) = %d, want %d", test.values, got, test.want)
		}
	}
}
