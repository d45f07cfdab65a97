// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"fmt"
	"strings"

	"github.com/safchain/ethtool"
)

// The features, by the names of `ethtool -k`'s long form.
const (
	FeatureTxChecksum = "tx-checksum-ip-generic"
	FeatureGRO        = "rx-gro"
	// FeatureTSO begins the name of each kind of TSO; FeatureUSO does so for UDP.
	FeatureTSO = "tx-tcp"
	FeatureUSO = "tx-udp-segmentation"
)

// Offloads is the work that a device leaves to its peer.
type Offloads struct {
	// Segments: TCP data, and several datagrams that a UDP socket writes at once, are not cut into frames (TSO, USO).
	Segments bool
	// Checksums: the checksum is incomplete when the frame is sent.
	Checksums bool
}

// Set applies the offloads to a device, and switches GRO on.
func (o Offloads) Set(name string) error {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return fmt.Errorf("set the offloads of %s: %w", name, err)
	}
	defer e.Close()
	known, err := e.FeatureNames(name)
	if err != nil {
		return fmt.Errorf("read the offloads of %s: %w", name, err)
	}
	features := map[string]bool{FeatureGRO: true, FeatureTxChecksum: o.Checksums}
	for feature := range known {
		if strings.HasPrefix(feature, FeatureTSO) || feature == FeatureUSO {
			features[feature] = o.Segments
		}
	}
	if err := e.Change(name, features); err != nil {
		return fmt.Errorf("set the offloads of %s: %w", name, err)
	}
	return nil
}
