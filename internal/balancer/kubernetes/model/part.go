// SPDX-License-Identifier: Apache-2.0

package model

import (
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/jeoul/jeoul/internal/balancer/kubernetes/annotations"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/pools"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// common is the settings and nodes that all Services depend on.
type common struct {
	class      string
	classless  bool
	mode       lb.Mode
	routedPods bool
	zone       string
	nodes      []*node
}

func (c common) same(o common) bool { return reflect.DeepEqual(c, o) }

// part is the result of one of our Services, with its inputs. It is never changed.
type part struct {
	service *corev1.Service
	// wishes and claim, and the verdict claimed, go by the Service alone.
	wishes  annotations.Wishes
	claim   pools.Claim
	claimed Verdict
	// services and verdict go by its slices and its grant, too.
	slices   []*discoveryv1.EndpointSlice
	grant    pools.Grant
	services []lb.Service
	verdict  Verdict
	served   bool
}

// partOf returns the part of a Service; nil where it is not ours. The former part is taken where the object is the
// same.
func (b *builder) partOf(s *corev1.Service, before Picture) *part {
	key := Key(s)
	if old := before.parts[key]; old != nil && old.service == s {
		b.Wishes[key], b.Verdicts[key], b.parts[key] = old.wishes, old.claimed, old
		return old
	}
	if !b.admit(s, before.Wishes) {
		return nil
	}
	b.anew = true
	p := &part{service: s, claim: b.claim(s)}
	p.wishes, p.claimed = b.Wishes[key], clipped(b.Verdicts[key])
	b.parts[key] = p
	return p
}

// serve adds the services of a part, which are the former ones where its slices and its grant have not changed.
func (b *builder) serve(p *part) {
	key := Key(p.service)
	grant, list := b.Grants[key], b.slices[key]
	if !p.served || !slices.Equal(p.slices, list) || !b.granted && !reflect.DeepEqual(p.grant, grant) {
		first, made := len(b.Services), *p
		b.Verdicts[key] = p.claimed
		b.add(p.service)
		made.slices, made.grant, made.served = list, grant, true
		made.services, made.verdict = slices.Clone(b.Services[first:]), clipped(b.Verdicts[key])
		b.parts[key] = &made
		return
	}
	b.Verdicts[key] = p.verdict
	for _, s := range p.services {
		b.Services, b.Owners = append(b.Services, s), append(b.Owners, key)
	}
}

// clipped returns a verdict that problems can be added to without changing another one.
func clipped(v Verdict) Verdict {
	v.Problems, v.Unassigned = slices.Clip(v.Problems), slices.Clip(v.Unassigned)
	return v
}
