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

// sharedInputs is the settings and nodes that all Services depend on.
type sharedInputs struct {
	class      string
	classless  bool
	mode       lb.Mode
	routedPods bool
	zone       string
	nodes      []*node
}

func (c sharedInputs) equal(o sharedInputs) bool { return reflect.DeepEqual(c, o) }

// serviceResult is the result of one of our Services, with its inputs. It is never changed.
type serviceResult struct {
	service *corev1.Service
	// settings and claim, and the verdict claimed, go by the Service alone.
	settings annotations.Settings
	claim    pools.Claim
	claimed  Verdict
	// services and verdict go by its slices and its grant, too.
	slices   []*discoveryv1.EndpointSlice
	grant    pools.Grant
	services []lb.Service
	verdict  Verdict
	served   bool
}

// resultOf returns the result of a Service; nil where it is not ours. The previous result is taken where the object is
// the same.
func (b *builder) resultOf(s *corev1.Service, before Result) *serviceResult {
	key := Key(s)
	if old := before.results[key]; old != nil && old.service == s {
		b.ServiceSettings[key], b.Verdicts[key], b.results[key] = old.settings, old.claimed, old
		return old
	}
	if !b.selectService(s, before.ServiceSettings) {
		return nil
	}
	b.changed = true
	p := &serviceResult{service: s, claim: b.claimOf(s)}
	p.settings, p.claimed = b.ServiceSettings[key], clipVerdict(b.Verdicts[key])
	b.results[key] = p
	return p
}

// addServices adds the services of a result, which are the previous ones where its slices and its grant have not
// changed.
func (b *builder) addServices(p *serviceResult) {
	key := Key(p.service)
	grant, list := b.Grants[key], b.slices[key]
	if !p.served || !slices.Equal(p.slices, list) || !b.sameGrants && !reflect.DeepEqual(p.grant, grant) {
		first, made := len(b.Services), *p
		b.Verdicts[key] = p.claimed
		b.addService(p.service)
		made.slices, made.grant, made.served = list, grant, true
		made.services, made.verdict = slices.Clone(b.Services[first:]), clipVerdict(b.Verdicts[key])
		b.results[key] = &made
		return
	}
	b.Verdicts[key] = p.verdict
	for _, s := range p.services {
		b.Services, b.Owners = append(b.Services, s), append(b.Owners, key)
	}
}

// clipVerdict returns a verdict that problems can be added to without changing another one.
func clipVerdict(v Verdict) Verdict {
	v.Problems, v.Unassigned = slices.Clip(v.Problems), slices.Clip(v.Unassigned)
	return v
}
