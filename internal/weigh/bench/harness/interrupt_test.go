// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"errors"
	"testing"
)

func TestUninterrupted(t *testing.T) {
	tries := 0
	ns, err := Uninterrupted(func() (float64, error) {
		if tries++; tries < 3 {
			return 0, ErrInterrupted
		}
		return 7, nil
	})
	if ns != 7 || err != nil || tries != 3 {
		t.Errorf("%v, %v after %d tries", ns, err, tries)
	}
	if _, err = Uninterrupted(func() (float64, error) { return 0, ErrInterrupted }); !errors.Is(err, ErrInterrupted) {
		t.Errorf("interrupted for ever: %v", err)
	}
	other := errors.New("other")
	if _, err = Uninterrupted(func() (float64, error) { return 0, other }); !errors.Is(err, other) {
		t.Errorf("another error: %v", err)
	}
}
