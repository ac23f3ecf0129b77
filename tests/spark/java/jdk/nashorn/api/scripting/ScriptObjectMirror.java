package jdk.nashorn.api.scripting;

/** A name that Maxwell's filters in JavaScript refer to, which Java has no longer. Nothing is ever of it. */
public interface ScriptObjectMirror {}
