// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/jeoul/jeoul/internal/balancer/kubernetes/gateway"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/model"
)

const (
	// revisionInterval is the interval of queries for the API server's resource version. After a rollback, such as the
	// restoration of a backup of etcd, a watch waits for a version that does not come, and reports nothing.
	revisionInterval = 10 * time.Second
	// revisionTimeout bounds one request.
	revisionTimeout = 5 * time.Second
	// revisionBump is an increase of the resource version that no writes make between two answers: half of that by
	// which etcd's guide has a restored backup marked (--bump-revision 1000000000).
	revisionBump = 500_000_000
	// rollbackGrace is the time for a cluster's controllers to update their objects, such as EndpointSlices, after a
	// rollback. Until then the previous objects stay.
	rollbackGrace = 20 * time.Second
)

// vanished are the objects that a cluster had before its etcd was restored from an older backup, and lacks now: no user
// has deleted them.
type vanished struct {
	// at is when that was found.
	at       time.Time
	services map[string]*corev1.Service
	slices   map[string]*discoveryv1.EndpointSlice
	// objects are the objects of the Gateway API, and those that they refer to, by their kinds and their
	// "namespace/name".
	objects map[Kind]map[string]metav1.Object
}

// keepObjects stores the objects of a kind.
func keepObjects[T metav1.Object](p *vanished, kind Kind, list []T) {
	p.objects[kind] = make(map[string]metav1.Object, len(list))
	for _, object := range list {
		p.objects[kind][model.Key(object)] = object
	}
}

// presentObjects returns the objects of a kind by namespace and name, and those that vanished in a rollback. An object
// that has reappeared is taken from the cluster.
func presentObjects[T metav1.Object](w *Watcher, kind Kind) []T {
	list := listed[T](w, kind)
	w.mu.Lock()
	defer w.mu.Unlock()
	kept := w.vanished.objects[kind]
	for _, object := range list {
		delete(kept, model.Key(object))
	}
	for _, object := range kept {
		list = append(list, object.(T))
	}
	sortByName(list)
	return list
}

// revisionOf returns a function that reads a cluster's present resource version, as etcd has it.
func revisionOf(client kubernetes.Interface) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		list, err := client.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return "", err
		}
		return list.ResourceVersion, nil
	}
}

// awaitRollback returns true after a rollback of the cluster, and false when the context ends.
func (w *Watcher) awaitRollback(ctx context.Context) bool {
	var last uint64
	for {
		select {
		case <-ctx.Done():
			return false
		case <-w.wentBack:
			return true
		case <-time.After(w.revisionInterval):
		}
		// The answer is no older than what was seen before the request, but may be older than what is seen meanwhile.
		last = max(last, w.lastRevision(Services))
		now, err := w.readRevision(ctx)
		if ctx.Err() != nil {
			return false
		}
		w.mu.Lock()
		w.revisionState = w.revisionState.next(err)
		w.mu.Unlock()
		if err != nil || now == 0 {
			continue
		}
		if isRollback(last, now) {
			return true
		}
		last = now
	}
}

// isRollback reports whether a cluster that had a resource version was restored from a backup when it has another; 0 is
// none.
func isRollback(last, now uint64) bool {
	return last > 0 && now > 0 && (now < last || now-last >= revisionBump)
}

// isListAfterRollback reports whether a list's resource version is that of a cluster that was rolled back, and signals
// it. The objects before are kept then, so the informer must not get the list; it is about to end.
func (w *Watcher) isListAfterRollback(kind Kind, revision string) bool {
	if !isRollback(w.lastRevision(kind), numberOf(revision)) {
		return false
	}
	select {
	case w.wentBack <- struct{}{}:
	default:
	}
	return true
}

// numberOf returns a resource version as a number; 0 if it is none, as in clusters without etcd.
func numberOf(revision string) uint64 {
	number, _ := strconv.ParseUint(revision, 10, 64)
	return number
}

// readRevision returns the cluster's resource version; 0 if it is no number.
func (w *Watcher) readRevision(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, revisionTimeout)
	defer cancel()
	text, err := w.revision(ctx)
	if err != nil {
		return 0, err
	}
	return numberOf(text), nil
}

// lastRevision returns the resource version of the last list or watch of a kind; 0: there was none.
func (w *Watcher) lastRevision(kind Kind) uint64 {
	return numberOf(w.allInformers()[kind].LastSyncResourceVersion())
}

// relist lists all objects again, and keeps the previous Services with their endpoints.
func (w *Watcher) relist() {
	before := w.Cluster() // with the objects that were kept already
	kept := vanished{at: time.Now(), services: map[string]*corev1.Service{},
		slices: map[string]*discoveryv1.EndpointSlice{}, objects: map[Kind]map[string]metav1.Object{}}
	for _, s := range before.Services {
		if s.Spec.Type == corev1.ServiceTypeLoadBalancer || w.gateways != nil { // routes may refer to any Service
			kept.services[model.Key(s)] = s
		}
	}
	if w.gateways != nil {
		kept.keepGatewayObjects(w.Gateways())
	}
	for _, slice := range before.Slices {
		if kept.services[ownerOf(slice)] != nil {
			kept.slices[slice.Namespace+"/"+slice.Name] = slice
		}
	}
	select {
	case <-w.wentBack: // other kinds found the same
	default:
	}
	w.mu.Lock()
	sources := maps.Clone(w.sources)
	w.vanished, w.settled = kept, time.Now().Add(w.rollbackGrace)
	w.mu.Unlock()
	for kind, s := range sources {
		// The only error is that of a handler added to an informer that has ended, which a new one has not.
		_ = w.addInformer(kind, s)
	}
}

// keepGatewayObjects stores the objects of Gateways, except Services.
func (p *vanished) keepGatewayObjects(o gateway.Objects) {
	keepObjects(p, GatewayClasses, o.Classes)
	keepObjects(p, Gateways, o.Gateways)
	keepObjects(p, TCPRoutes, o.TCPRoutes)
	keepObjects(p, UDPRoutes, o.UDPRoutes)
	keepObjects(p, HTTPRoutes, o.HTTPRoutes)
	keepObjects(p, ReferenceGrants, o.Grants)
	keepObjects(p, Namespaces, o.Namespaces)
	keepObjects(p, Secrets, o.Secrets)
}

func ownerOf(slice *discoveryv1.EndpointSlice) string {
	return slice.Namespace + "/" + slice.Labels[discoveryv1.LabelServiceName]
}

func (w *Watcher) hasSettled() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !time.Now().Before(w.settled)
}

func (w *Watcher) hasVanished() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.vanished.services)+len(w.vanished.objects) > 0
}

// withVanished adds the objects that vanished in a rollback. A Service that has reappeared is taken from the cluster.
func (w *Watcher) withVanished(c model.Cluster) model.Cluster {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.vanished.services) == 0 {
		return c
	}
	for _, s := range c.Services {
		delete(w.vanished.services, model.Key(s))
	}
	for name, slice := range w.vanished.slices {
		if w.vanished.services[ownerOf(slice)] == nil {
			delete(w.vanished.slices, name)
		}
	}
	c.Slices = slices.DeleteFunc(c.Slices, func(slice *discoveryv1.EndpointSlice) bool {
		return w.vanished.slices[slice.Namespace+"/"+slice.Name] != nil
	})
	for _, s := range w.vanished.services {
		c.Services = append(c.Services, s)
	}
	for _, slice := range w.vanished.slices {
		c.Slices = append(c.Slices, slice)
	}
	return c
}

// Kept returns the sorted "namespace/name" of the Services that are kept after a rollback, and its time.
func (w *Watcher) Kept() (names []string, since time.Time) {
	if !w.hasVanished() || !w.Synced() {
		return nil, time.Time{} // during rollbackGrace, they are not known yet
	}
	w.Cluster() // drops those that have reappeared
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, s := range w.vanished.services {
		if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, w.vanished.at
}

// KeptGateways returns the Gateways and routes that are kept after a rollback, as in "Gateway shop/edge", sorted.
func (w *Watcher) KeptGateways() (names []string) {
	if !w.hasVanished() || !w.GatewaysSynced() {
		return nil
	}
	w.Gateways() // drops those that have reappeared
	w.mu.Lock()
	defer w.mu.Unlock()
	for kind, word := range map[Kind]string{Gateways: "Gateway", TCPRoutes: "TCPRoute", UDPRoutes: "UDPRoute",
		HTTPRoutes: "HTTPRoute"} {
		for name := range w.vanished.objects[kind] {
			names = append(names, word+" "+name)
		}
	}
	slices.Sort(names)
	return names
}

// RevisionState returns the state of the queries for the API server's resource version.
func (w *Watcher) RevisionState() State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.revisionState
}

// RolledBack returns the time of the last rollback; zero: there was none.
func (w *Watcher) RolledBack() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.vanished.at
}
