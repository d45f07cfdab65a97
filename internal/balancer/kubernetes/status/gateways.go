// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/jeoul/jeoul/internal/balancer/kubernetes/gateway"
)

// WriteGateways writes the statuses of the objects of the Gateway API. It continues after an error, and returns all
// errors. An object that another client has changed since is written after the watch has reported that change.
func (w *Writer) WriteGateways(ctx context.Context, r gateway.Report) error {
	var errs []error
	note := func(kind string, object metav1.Object, err error) {
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("write the status of %s %s/%s: %w", kind, object.GetNamespace(),
				object.GetName(),
				err))
		}
	}
	for _, c := range r.Classes {
		note("GatewayClass", c.Object, w.writeClass(ctx, c))
	}
	for _, g := range r.Gateways {
		note("Gateway", g.Object, w.writeGateway(ctx, g))
	}
	for _, route := range r.Routes {
		note(route.Kind, route.Object, w.writeRoute(ctx, route))
	}
	return errors.Join(errs...)
}

// merge returns conditions updated by ours: unchanged ones keep the time of their last change, and conditions of a
// later generation of the object are kept.
func (w *Writer) merge(object runtime.Object, had, ours []metav1.Condition) []metav1.Condition {
	merged := slices.Clone(had)
	for _, c := range ours {
		c.Message = Truncate(c.Message, maxMessage)
		before := apimeta.FindStatusCondition(had, c.Type)
		if before != nil && before.ObservedGeneration > c.ObservedGeneration {
			continue
		}
		apimeta.SetStatusCondition(&merged, c)
		if c.Status == metav1.ConditionFalse && c.Type != string(v1.ListenerConditionConflicted) &&
			(before == nil || before.Status != c.Status || before.Reason != c.Reason || before.Message != c.Message) {
			w.Recorder.Eventf(object, nil, corev1.EventTypeWarning, c.Reason, "Serve", "%s: %s", c.Type, c.Message)
		}
	}
	return merged
}

func (w *Writer) writeClass(ctx context.Context, c gateway.ClassStatus) error {
	next := c.Object.DeepCopy()
	next.Status.Conditions = w.merge(c.Object, c.Object.Status.Conditions, c.Status.Conditions)
	next.Status.SupportedFeatures = c.Status.SupportedFeatures
	if reflect.DeepEqual(next.Status, c.Object.Status) {
		return nil
	}
	_, err := w.Gateways.GatewayV1().GatewayClasses().UpdateStatus(ctx, next, metav1.UpdateOptions{})
	return err
}

func (w *Writer) writeGateway(ctx context.Context, g gateway.GatewayStatus) error {
	next := g.Object.DeepCopy()
	next.Status.Addresses = g.Status.Addresses
	next.Status.Conditions = w.merge(g.Object, g.Object.Status.Conditions, g.Status.Conditions)
	next.Status.Listeners = make([]v1.ListenerStatus, len(g.Status.Listeners))
	for i, l := range g.Status.Listeners {
		var had []metav1.Condition
		for _, before := range g.Object.Status.Listeners {
			if before.Name == l.Name {
				had = before.Conditions
			}
		}
		l.Conditions = w.merge(g.Object, had, l.Conditions)
		next.Status.Listeners[i] = l
	}
	if reflect.DeepEqual(next.Status, g.Object.Status) {
		return nil
	}
	next.ManagedFields = nil // they are incomplete: see watch
	// By the manager, the gateway package knows whose addresses the status has.
	_, err := w.Gateways.GatewayV1().Gateways(next.Namespace).UpdateStatus(ctx, next,
		metav1.UpdateOptions{FieldManager: w.manager()})
	return err
}

// writeRoute replaces the parents of a route that our controller has written; those of others stay.
func (w *Writer) writeRoute(ctx context.Context, r gateway.RouteStatus) error {
	api := w.Gateways.GatewayV1()
	var err error
	switch object := r.Object.(type) {
	case *v1.TCPRoute:
		next := object.DeepCopy()
		if next.Status.Parents = w.mergeParents(object, object.Status.Parents, r); !reflect.DeepEqual(next.Status,
			object.Status) {
			_, err = api.TCPRoutes(next.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{})
		}
	case *v1.UDPRoute:
		next := object.DeepCopy()
		if next.Status.Parents = w.mergeParents(object, object.Status.Parents, r); !reflect.DeepEqual(next.Status,
			object.Status) {
			_, err = api.UDPRoutes(next.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{})
		}
	case *v1.HTTPRoute:
		next := object.DeepCopy()
		if next.Status.Parents = w.mergeParents(object, object.Status.Parents, r); !reflect.DeepEqual(next.Status,
			object.Status) {
			_, err = api.HTTPRoutes(next.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{})
		}
	}
	return err
}

// mergeParents returns a route's parents with those of our controller as reported. Each stays in its place: where two
// controllers sorted the parents of one route, each would undo what the other has written.
func (w *Writer) mergeParents(object runtime.Object, had []v1.RouteParentStatus,
	r gateway.RouteStatus) []v1.RouteParentStatus {
	merged := []v1.RouteParentStatus{} // the field must be there
	reported := slices.Clone(r.Parents)
	for _, before := range had {
		if before.ControllerName != r.Controller {
			merged = append(merged, before)
			continue
		}
		i := slices.IndexFunc(reported, func(parent v1.RouteParentStatus) bool {
			return reflect.DeepEqual(before.ParentRef, parent.ParentRef)
		})
		if i >= 0 {
			reported[i].Conditions = w.mergeParent(object, before.Conditions, reported[i].Conditions)
			merged = append(merged, reported[i])
			reported = slices.Delete(reported, i, i+1)
		}
	}
	for _, parent := range reported {
		parent.Conditions = w.mergeParent(object, nil, parent.Conditions)
		merged = append(merged, parent)
	}
	return merged
}

// mergeParent is merge for a route's conditions, of which PartiallyInvalid is there only while it is true.
func (w *Writer) mergeParent(object runtime.Object, had, ours []metav1.Condition) []metav1.Condition {
	const partial = string(v1.RouteConditionPartiallyInvalid)
	merged := w.merge(object, had, ours)
	if apimeta.FindStatusCondition(ours, partial) == nil {
		apimeta.RemoveStatusCondition(&merged, partial)
	}
	return merged
}
