// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"testing"

	"github.com/safchain/ethtool"
)

// TestFixedTagOffload: a feature that cannot be switched off is not tried.
func TestFixedTagOffload(t *testing.T) {
	shown := &Tags{DisableFeature: func(string, string, string) error { return nil }}
	for state, refused := range map[ethtool.FeatureState]bool{
		{Active: true, Available: true}:                     false,
		{Active: true, Available: true, NeverChanged: true}: true,
		{Active: true}: true,
	} {
		if err := shown.disableFeature("eth9", TagOffloads[0], state); (err != nil) != refused || refused &&
			!errors.Is(err, ErrUnsupported) {
			t.Errorf("%+v: %v", state, err)
		}
	}
}
