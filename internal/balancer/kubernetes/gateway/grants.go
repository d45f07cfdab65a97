// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	v1 "sigs.k8s.io/gateway-api/apis/v1"
)

// reference is an object's reference to another object, possibly in another namespace.
type reference struct {
	// fromKind is a kind of the Gateway API's group.
	fromKind, fromNamespace string
	toKind, toNamespace     string
	name                    string
}

// granted reports whether a ReferenceGrant in the other namespace allows a reference to a kind of the core group, or
// the namespace is the same.
func granted(grants []*v1.ReferenceGrant, r reference) bool {
	if r.fromNamespace == r.toNamespace {
		return true
	}
	for _, g := range grants {
		if g.Namespace == r.toNamespace && allowsFrom(g, r) && allowsTo(g, r) {
			return true
		}
	}
	return false
}

func allowsFrom(g *v1.ReferenceGrant, r reference) bool {
	for _, from := range g.Spec.From {
		if from.Group == v1.GroupName && string(from.Kind) == r.fromKind && string(from.Namespace) == r.fromNamespace {
			return true
		}
	}
	return false
}

func allowsTo(g *v1.ReferenceGrant, r reference) bool {
	for _, to := range g.Spec.To {
		if to.Group == "" && string(to.Kind) == r.toKind &&
			(to.Name == nil || *to.Name == "" || string(*to.Name) == r.name) {
			return true
		}
	}
	return false
}
