// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	v1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/pkg/client/clientset/versioned"

	"github.com/jeoul/jeoul/internal/balancer/kubernetes/gateway"
	"github.com/jeoul/jeoul/internal/host/clock"
)

// kindsInterval is the interval of queries for missing kinds of the Gateway API.
const kindsInterval = 10 * time.Second

// gatewayKinds are the kinds of the Gateway API, which a cluster may lack.
type gatewayKinds struct {
	client  kubernetes.Interface
	sources map[Kind]source
	mu      sync.Mutex
	readAt  bool
	missing []Kind
}

// known reports whether the cluster has answered which kinds it has.
func (g *gatewayKinds) known() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.readAt
}

// FollowGateways has the Watcher follow the Gateway API as soon as the cluster has it. It is called before Run.
func (w *Watcher) FollowGateways(client kubernetes.Interface, gateways versioned.Interface, secrets bool) error {
	api, all := gateways.GatewayV1(), metav1.NamespaceAll
	w.gateways = &gatewayKinds{client: client, sources: map[Kind]source{
		GatewayClasses:  sourceOf(api.GatewayClasses(), &v1.GatewayClass{}),
		Gateways:        sourceOf(api.Gateways(all), &v1.Gateway{}),
		TCPRoutes:       sourceOf(api.TCPRoutes(all), &v1.TCPRoute{}),
		UDPRoutes:       sourceOf(api.UDPRoutes(all), &v1.UDPRoute{}),
		HTTPRoutes:      sourceOf(api.HTTPRoutes(all), &v1.HTTPRoute{}),
		ReferenceGrants: sourceOf(api.ReferenceGrants(all), &v1.ReferenceGrant{}),
	}}
	if err := w.addInformer(Namespaces, sourceOf(client.CoreV1().Namespaces(), &corev1.Namespace{})); err != nil {
		return err
	}
	if !secrets {
		return nil
	}
	const certificates = "type=" + string(corev1.SecretTypeTLS)
	list := client.CoreV1().Secrets(all)
	return w.addInformer(Secrets, source{
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = certificates
			return list.List(ctx, o)
		},
		func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			o.FieldSelector = certificates
			return list.Watch(ctx, o)
		}, &corev1.Secret{}})
}

// followGateways starts to follow each kind when the cluster has it. The objects of a kind that is removed later stay.
func (w *Watcher) followGateways(ctx context.Context, running *sync.WaitGroup) {
	for {
		found, err := w.gateways.discover()
		if err == nil {
			for _, kind := range found {
				if w.allInformers()[kind] != nil || w.addInformer(kind, w.gateways.sources[kind]) != nil {
					continue
				}
				informer := w.allInformers()[kind]
				running.Go(func() { informer.RunWithContext(ctx) })
			}
			w.gateways.setMissing(found)
			w.notifyChanged()
		}
		if len(found) == len(w.gateways.sources) || clock.Sleep(ctx, kindsInterval) != nil {
			return
		}
	}
}

// discover returns which of the kinds the cluster has.
func (g *gatewayKinds) discover() (found []Kind, err error) {
	list, err := g.client.Discovery().ServerResourcesForGroupVersion(v1.GroupVersion.String())
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, resource := range list.APIResources {
		if _, wanted := g.sources[Kind(resource.Name)]; wanted {
			found = append(found, Kind(resource.Name))
		}
	}
	return found, nil
}

func (g *gatewayKinds) setMissing(found []Kind) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.readAt, g.missing = true, nil
	for kind := range g.sources {
		if !slices.Contains(found, kind) {
			g.missing = append(g.missing, kind)
		}
	}
	slices.Sort(g.missing)
}

// Missing returns the kinds of the Gateway API that the cluster does not have, of those that are to be followed.
func (w *Watcher) Missing() []Kind {
	if w.gateways == nil {
		return nil
	}
	w.gateways.mu.Lock()
	defer w.gateways.mu.Unlock()
	return slices.Clone(w.gateways.missing)
}

// GatewaysSynced reports whether all objects were listed once, of those kinds that the cluster has.
func (w *Watcher) GatewaysSynced() bool {
	return w.hasSettled() && (w.gateways == nil || w.gateways.known()) && w.haveSynced()
}

// GatewayAddressesKnown reports whether Gateways and their classes were listed once, where the cluster has them: what
// they refer to does not change their addresses.
func (w *Watcher) GatewayAddressesKnown() bool {
	return w.hasSettled() && w.gateways.known() && w.haveSynced(GatewayClasses, Gateways)
}

// Gateways returns the objects of the Gateway API, and those that they refer to except Services, of which Cluster has
// a list. They must not be changed.
func (w *Watcher) Gateways() gateway.Objects {
	return gateway.Objects{Classes: presentObjects[*v1.GatewayClass](w, GatewayClasses),
		Gateways:  presentObjects[*v1.Gateway](w, Gateways),
		TCPRoutes: presentObjects[*v1.TCPRoute](w, TCPRoutes), UDPRoutes: presentObjects[*v1.UDPRoute](w, UDPRoutes),
		HTTPRoutes: presentObjects[*v1.HTTPRoute](w, HTTPRoutes), Grants: presentObjects[*v1.ReferenceGrant](w,
			ReferenceGrants),
		Namespaces: presentObjects[*corev1.Namespace](w, Namespaces),
		Secrets:    presentObjects[*corev1.Secret](w, Secrets)}
}
